/* tailrace_status.h - the status codes of tailrace, shared by the C, C++ and every other interface.
 *
 * A failure is a code and a sentence. The code says what kind of failure it is, so that a program
 * can decide what to do. The sentence (tailrace_last_error) says what was tried, on which path,
 * offset and length, and what is left intact. The number of a code never changes. C11; needs no
 * other header.
 */
#ifndef TAILRACE_STATUS_H
#define TAILRACE_STATUS_H

/* ---- codes ---------------------------------------------------------------------------------------- */

typedef enum tailrace_code {
    TAILRACE_OK = 0,
    TAILRACE_INVALID_ARGUMENT = 1, /* the call or the configuration makes no sense; nothing was done */
    TAILRACE_NOT_FOUND = 2,        /* no such epoch, region, rank, file */
    TAILRACE_ALREADY_EXISTS = 3,   /* the epoch or region is there already and was left as it is */
    TAILRACE_NO_SPACE = 4,         /* the file system or a quota is full */
    TAILRACE_IO_ERROR = 5,         /* the operating system refused or failed an operation on a file */
    TAILRACE_CORRUPT = 6,          /* what was read is not what was written, or never was ours */
    TAILRACE_UNSUPPORTED = 7,      /* this build, file system, MPI or format version cannot do it */
    TAILRACE_BUSY = 8,             /* something else holds it (another session, an unfinished flush) */
    TAILRACE_FAILED_STATE = 9,     /* not allowed in this state (closed session, epoch out of order) */
    TAILRACE_OUT_OF_MEMORY = 10,   /* memory could not be had */
    TAILRACE_TIMEOUT = 11,         /* the time given ran out; the work goes on */
    TAILRACE_TRANSPORT = 12,       /* communication between ranks failed */
    TAILRACE_ABORTED = 13          /* given up because another rank, node or group failed */
} tailrace_code;

#endif
