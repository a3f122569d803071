/* fortran.h - what the module FTI (fti.F90) needs from C. Private to the module. */
#ifndef TAILRACE_COMPAT_FTI_FORTRAN_H
#define TAILRACE_COMPAT_FTI_FORTRAN_H

#ifdef __cplusplus
extern "C" {
#endif

/* Says that FTI_Protect cannot take this variable, and returns FTI_NSCS. */
int tailrace_fti_refuse(int id, const char* why);

#ifdef __cplusplus
}
#endif

#endif
