#include <string>

#include "c_api/call.h"
#include "c_api/open_session.h"

using namespace tailrace::internal;

namespace tailrace::internal {

namespace {

struct LastError {
    std::string text;
    const char* shown = "";  // text, or a literal
};

LastError& last_error() {
    thread_local LastError error;
    return error;
}

}  // namespace

tailrace_code set_last_error_literal(Code code, const char* sentence) noexcept {
    last_error().shown = sentence;
    return static_cast<tailrace_code>(code);
}

tailrace_code keep_outcome(const Status& status) noexcept {
    LastError& error = last_error();
    if (status.ok()) return set_last_error_literal(Code::ok, "");
    try {
        error.text = status.message();
        error.shown = error.text.c_str();
    } catch (...) {
        error.shown = "the call failed, and there is no memory to say why";
    }
    return static_cast<tailrace_code>(status.code());
}

tailrace_code set_last_error(const Status& status) {
    return keep_outcome(status);
}

}  // namespace tailrace::internal

const char* tailrace_last_error(void) {
    return last_error().shown;
}

const char* tailrace_code_name(tailrace_code code) {
    return code_name(static_cast<Code>(number_of(code))).data();  // literals, so NUL-terminated
}
