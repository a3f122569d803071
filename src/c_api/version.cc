#include "tailrace.h"

#define TAILRACE_TEXT_(x) #x
#define TAILRACE_TEXT(x) TAILRACE_TEXT_(x)

const char* tailrace_version(void) {
    return TAILRACE_TEXT(TAILRACE_VERSION_MAJOR) "." TAILRACE_TEXT(TAILRACE_VERSION_MINOR) "." TAILRACE_TEXT(
        TAILRACE_VERSION_PATCH);
}
