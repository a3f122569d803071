// What the library shows: the names it takes from the MPI library, and nothing else.
#pragma once

#define TAILRACE_INTERCEPTED __attribute__((visibility("default")))
