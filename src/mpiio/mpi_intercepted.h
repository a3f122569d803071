// The names that the library takes from the MPI library. It exports nothing else.
#pragma once

#define TAILRACE_INTERCEPTED __attribute__((visibility("default")))
