#include "descriptors.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char sentence[512];

tailrace_code tailrace_fortran_refuse(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return TAILRACE_INVALID_ARGUMENT;
}

const char* tailrace_fortran_error(void) {
    return sentence[0] != '\0' ? sentence : tailrace_last_error();
}

void tailrace_fortran_forget(void) {
    sentence[0] = '\0';
}

/* ---- types ---------------------------------------------------------------------------------------- */

typedef struct element {
    CFI_type_t fortran;
    tailrace_type type;
} element;

/* Fortran knows no unsigned integers. A compiler may use one number for several of its C types. */
static const element elements[] = {
    {CFI_type_int8_t, TAILRACE_INT8},
    {CFI_type_int16_t, TAILRACE_INT16},
    {CFI_type_int32_t, TAILRACE_INT32},
    {CFI_type_int64_t, TAILRACE_INT64},
    {CFI_type_float, TAILRACE_FLOAT32},
    {CFI_type_double, TAILRACE_FLOAT64},
    {CFI_type_float_Complex, TAILRACE_COMPLEX64},
    {CFI_type_double_Complex, TAILRACE_COMPLEX128},
    {CFI_type_Bool, TAILRACE_BOOL},
};

tailrace_type tailrace_fortran_type(const CFI_cdesc_t* memory) {
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; ++i)
        if (elements[i].fortran == memory->type) return elements[i].type;
    return TAILRACE_BYTES;
}

/* ---- regions -------------------------------------------------------------------------------------- */

static int is_empty(const CFI_cdesc_t* memory) {
    for (int d = 0; d < memory->rank; ++d)
        if (memory->dim[d].extent == 0) return 1;
    return memory->elem_len == 0;
}

tailrace_code tailrace_fortran_check(const char* name, const CFI_cdesc_t* memory) {
    sentence[0] = '\0';
    for (int d = 0; d < memory->rank; ++d)
        if (memory->dim[d].extent < 0)
            return tailrace_fortran_refuse(
                "registering \"%s\": an array of assumed size has no last extent; give a section", name);
    if (memory->base_addr == NULL && !is_empty(memory))
        return tailrace_fortran_refuse(
            "registering \"%s\": it has no memory (not allocated, or a pointer to nothing)", name);
    return TAILRACE_OK;
}

tailrace_code tailrace_fortran_region(tailrace_session* session, const char* name, CFI_cdesc_t* memory,
                                      int how) {
    const tailrace_code checked = tailrace_fortran_check(name, memory);
    if (checked != TAILRACE_OK) return checked;
    size_t bytes = memory->elem_len;
    for (int d = 0; d < memory->rank; ++d) {
        if (memory->dim[d].extent > 1 && !is_empty(memory) && memory->dim[d].sm != (CFI_index_t)bytes)
            return tailrace_fortran_refuse(
                "registering \"%s\": the section is not contiguous; register all of the variable, or "
                "a piece of a global array (global_shape and first), which may be any section",
                name);
        bytes *= (size_t)memory->dim[d].extent;
    }
    void* const begin = bytes == 0 ? NULL : memory->base_addr;
    switch (how) {
        case 1:
            return tailrace_update(session, name, begin, bytes);
        case 2:
            return tailrace_register_replicated(session, name, begin, bytes);
        default:
            return tailrace_register(session, name, begin, bytes);
    }
}

/* ---- pieces of arrays ------------------------------------------------------------------------------- */

tailrace_code tailrace_fortran_array(tailrace_session* session, const char* name, CFI_cdesc_t* memory,
                                     int dimensions, const int64_t* global_shape, const int64_t* first,
                                     uint64_t flags, int again) {
    const tailrace_code checked = tailrace_fortran_check(name, memory);
    if (checked != TAILRACE_OK) return checked;
    if (memory->rank == 0 || memory->rank != dimensions)
        return tailrace_fortran_refuse(
            "registering \"%s\": it has %d dimensions, and global_shape and first have %d", name,
            (int)memory->rank, dimensions);
    uint64_t whole[CFI_MAX_RANK + 1], offset[CFI_MAX_RANK + 1], mine[CFI_MAX_RANK + 1],
        strides[CFI_MAX_RANK + 1];
    for (int d = 0; d < dimensions; ++d) {
        const int c = dimensions - 1 - d; /* C's last dimension is the fastest */
        if (global_shape[d] < 0 || first[d] < 1)
            return tailrace_fortran_refuse(
                "registering \"%s\": in dimension %d global_shape is %lld and first is %lld; indices "
                "count from 1",
                name, d + 1, (long long)global_shape[d], (long long)first[d]);
        if (memory->dim[d].extent > 1 && memory->dim[d].sm <= 0)
            return tailrace_fortran_refuse("registering \"%s\": dimension %d of the section runs backwards",
                                           name, d + 1);
        whole[c] = (uint64_t)global_shape[d];
        offset[c] = (uint64_t)(first[d] - 1);
        mine[c] = (uint64_t)memory->dim[d].extent;
        strides[c] = memory->dim[d].extent > 1 ? (uint64_t)memory->dim[d].sm : memory->elem_len;
    }
    tailrace_array array = {.type = tailrace_fortran_type(memory),
                            .dimensions = dimensions,
                            .global_shape = whole,
                            .offset = offset,
                            .local_shape = mine,
                            .flags = flags,
                            .memory_stride_bytes = strides};
    if (array.type == TAILRACE_BYTES && memory->elem_len != 1) {
        whole[dimensions] = mine[dimensions] = memory->elem_len;
        offset[dimensions] = 0;
        strides[dimensions] = 1;
        ++array.dimensions;
    }
    return again ? tailrace_update_array(session, name, memory->base_addr, &array)
                 : tailrace_register_array(session, name, memory->base_addr, &array);
}
