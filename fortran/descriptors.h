/* What the module tailrace (tailrace.F90) needs from C: a Fortran argument of any type, kind and rank, as a
 * C descriptor (ISO_Fortran_binding.h), becomes a region or a piece of a global array. Private to the module.
 *
 * Thread-safe as tailrace.h is. A failure that these functions find themselves leaves its sentence for
 * tailrace_fortran_error() of the same thread, until the thread's next call here. */
#ifndef TAILRACE_FORTRAN_DESCRIPTORS_H
#define TAILRACE_FORTRAN_DESCRIPTORS_H

#include <ISO_Fortran_binding.h>
#include <stdint.h>

#include "tailrace.h"

/* TAILRACE_BYTES for a type that has no name in tailrace.h. */
tailrace_type tailrace_fortran_type(const CFI_cdesc_t* memory);
/* Refuses what has no memory: an allocatable that is not allocated, a pointer to nothing; and what has no
 * known size. */
tailrace_code tailrace_fortran_check(const char* name, const CFI_cdesc_t* memory);
/* Leaves a sentence, as printf has it, for TAILRACE_INVALID_ARGUMENT, which it returns. */
tailrace_code tailrace_fortran_refuse(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* Registers `memory` as plain bytes of this rank (`how` is 0), gives a registered name this memory (1), or
 * registers it as a value that is the same on all ranks (2). It must be contiguous. tailrace.F90 has the same
 * numbers. */
tailrace_code tailrace_fortran_region(tailrace_session* session, const char* name, CFI_cdesc_t* memory,
                                      int how);

/* Registers a piece of a global array, or gives a registered name this piece (`again` is not 0). global_shape
 * and first have `dimensions` numbers, in Fortran's order; `first` counts from 1. Elements whose type has no
 * name in tailrace.h (characters, derived types, kinds of 10 or 16 bytes) are bytes, in one more dimension,
 * which is the fastest. */
tailrace_code tailrace_fortran_array(tailrace_session* session, const char* name, CFI_cdesc_t* memory,
                                     int dimensions, const int64_t* global_shape, const int64_t* first,
                                     uint64_t flags, int again);

/* Registers this rank's items of a list: the first *count elements along the last dimension of `memory`,
 * which is contiguous and has room for more. *count is an integer of count_bytes (4 or 8). A save reads it,
 * and a restore sets it. */
tailrace_code tailrace_fortran_list(tailrace_session* session, const char* name, CFI_cdesc_t* memory,
                                    void* count, size_t count_bytes);
/* Unregisters a name, of whatever kind. */
tailrace_code tailrace_fortran_remove(tailrace_session* session, const char* name);
/* tailrace_close; what is kept of the session's lists goes with it. */
tailrace_code tailrace_fortran_close(tailrace_session* session);

/* The sentence for `code`, which this thread's last call here or of tailrace.h has returned. Never NULL. */
const char* tailrace_fortran_error(void);
/* Forgets the sentence of an earlier call here, so that tailrace_last_error() counts. */
void tailrace_fortran_forget(void);

#endif
