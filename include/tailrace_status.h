/* tailrace_status.h - the status codes of tailrace, shared by the C, C++ and every other interface.
 *
 * A failure is a code and a sentence. The code names the kind of failure, so that a program can
 * decide what to do. The sentence (tailrace_last_error) names the operation, the path, the offset
 * and the length, and says what is left intact. The number of a code never changes. C11. This
 * header needs no other header.
 */
#ifndef TAILRACE_STATUS_H
#define TAILRACE_STATUS_H

/* ---- codes ---------------------------------------------------------------------------------------- */

typedef enum tailrace_code {
    TAILRACE_OK = 0,
    TAILRACE_INVALID_ARGUMENT = 1, /* an argument or a setting is invalid; nothing was done */
    TAILRACE_NOT_FOUND = 2,        /* there is no such epoch, region, rank or file */
    TAILRACE_ALREADY_EXISTS = 3,   /* the epoch or region exists already and was left as it is */
    TAILRACE_NO_SPACE = 4,         /* the file system or a quota is full */
    TAILRACE_IO_ERROR = 5,         /* the operating system refused or failed an operation on a file */
    TAILRACE_CORRUPT = 6,          /* the data differs from the data written, or is not tailrace's */
    TAILRACE_UNSUPPORTED = 7,      /* this build, file system, MPI or format version cannot do it */
    TAILRACE_BUSY = 8,             /* another session or an unfinished flush holds the resource */
    TAILRACE_FAILED_STATE = 9,     /* the state forbids the call (closed session, epoch out of order) */
    TAILRACE_OUT_OF_MEMORY = 10,   /* memory could not be allocated */
    TAILRACE_TIMEOUT = 11,         /* the given time has passed; the work goes on */
    TAILRACE_TRANSPORT = 12,       /* communication between ranks failed */
    TAILRACE_ABORTED = 13          /* given up because another rank, node or group has failed */
} tailrace_code;

#endif
