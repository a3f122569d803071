/* A Fortran variable of any type, kind and rank, as a C descriptor, is protected as bytes. */
#include <ISO_Fortran_binding.h>
#include <fti.h>

#include "fortran.h"

int tailrace_fti_protect(int id, const CFI_cdesc_t* variable) {
    int64_t elements = 1;
    for (int d = 0; d < variable->rank; ++d) {
        if (variable->dim[d].extent < 0) return tailrace_fti_refuse(id, "an array whose size is not known");
        elements *= (int64_t)variable->dim[d].extent;
    }
    const int64_t bytes = elements * (int64_t)variable->elem_len;
    if (variable->base_addr == NULL && bytes > 0)
        return tailrace_fti_refuse(id, "memory that is not there; allocate it first");
    if (variable->rank > 0 && bytes > 0 && !CFI_is_contiguous(variable))
        return tailrace_fti_refuse(id, "an array with gaps; protect the whole array");
    return FTI_Protect(id, variable->base_addr, bytes, FTI_CHAR);
}
