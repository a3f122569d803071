/* defs.h - the numbers of the VELOC interface (veloc.h beside this directory). They never change. */
#ifndef TAILRACE_COMPAT_VELOC_DEFS_H
#define TAILRACE_COMPAT_VELOC_DEFS_H

/* ---- results -------------------------------------------------------------------------------------- */

#define VELOC_SUCCESS (0)
#define VELOC_FAILURE (-1)
#define VELOC_IGNORED (-2)

/* ---- sizes ---------------------------------------------------------------------------------------- */

#define VELOC_MAX_NAME (1024) /* bytes that VELOC_Route_file may write */

/* ---- which regions -------------------------------------------------------------------------------- */

#define VELOC_RECOVER_ALL (0)
#define VELOC_RECOVER_SOME (1) /* those that are listed */
#define VELOC_RECOVER_REST (2) /* all but those */

#define VELOC_CKPT_ALL (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)

/* ---- what an observer hears of -------------------------------------------------------------------- */

#define VELOC_OBSERVE_CKPT_END (0)

#endif
