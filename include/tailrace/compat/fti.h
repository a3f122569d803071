/* fti.h - the interface of FTI, with tailrace beneath: programs that were written for FTI are compiled with
 * this header unchanged. docs/fti.md says how, and what differs.
 *
 * Link with libfti, built against the MPI library that the program uses.
 *
 * After a failure one line on stderr says what was tried and what to do. No function ends the program. All
 * ranks of the communicator that FTI_Init was given must call FTI_Init, FTI_Checkpoint, FTI_Snapshot,
 * FTI_Recover and FTI_Finalize, in the same order. The other functions are a rank's own. One thread at a time
 * may call.
 *
 * A checkpoint is an epoch of a tailrace session. Each level has a session of its own. */
#ifndef TAILRACE_COMPAT_FTI_H
#define TAILRACE_COMPAT_FTI_H

/* Programs take these from FTI's header. */
#include <errno.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- results -------------------------------------------------------------------------------------- */

#define FTI_SCES 0  /* it went well */
#define FTI_NSCS -1 /* it failed */
#define FTI_NREC -2 /* there is nothing to recover, or it cannot be */
#define FTI_DONE 1  /* a checkpoint was taken */
#define FTI_HEAD 2  /* never returned: no rank is a server */

#define FTI_BUFS 256 /* the room for a name */
#define FTI_WORD 16

/* States of a file that is sent to the global directory. */
#define FTI_SI_NINI 0x0
#define FTI_SI_PEND 0x1
#define FTI_SI_ACTV 0x2
#define FTI_SI_SCES 0x3
#define FTI_SI_FAIL 0x4

/* Levels of a checkpoint. */
typedef enum {
    FTI_L1 = 1,
    FTI_L2,
    FTI_L3,
    FTI_L4,
    FTI_L1_DCP,
    FTI_L2_DCP,
    FTI_L3_DCP,
    FTI_L4_DCP,
    FTI_L4_H5_SINGLE,
    FTI_MIN_LEVEL_ID = FTI_L1,
    FTI_MAX_LEVEL_ID = FTI_L4_H5_SINGLE
} FTIT_level;

/* ---- types of data -------------------------------------------------------------------------------- */

typedef int fti_id_t;
#define FTIT_type fti_id_t

typedef int64_t FTIT_hsize_t;

typedef struct FTIT_H5Group {
    int id;
    char name[FTI_BUFS];
    char fullName[FTI_BUFS];
    int childrenNo;
    int childrenID[FTI_BUFS];
} FTIT_H5Group;

typedef enum { FTI_ATTRIBUTE_NAME = 1 << 0, FTI_ATTRIBUTE_DIM = 1 << 1 } FTIT_attributeFlag;

typedef struct FTIT_dimension {
    int ndims;
    int64_t count[32];
} FTIT_dimension;

typedef struct FTIT_attribute {
    FTIT_dimension dim;
    char name[FTI_BUFS];
} FTIT_attribute;

/* Of FTI_GetConfig, which this library does not have. */
typedef struct FTIT_allConfiguration {
    int reserved;
} FTIT_allConfiguration;

/* FTI_Init sets these. */
extern MPI_Comm FTI_COMM_WORLD; /* a duplicate of what FTI_Init was given */
extern fti_id_t FTI_CHAR;
extern fti_id_t FTI_SHRT;
extern fti_id_t FTI_INTG;
extern fti_id_t FTI_LONG;
extern fti_id_t FTI_UCHR;
extern fti_id_t FTI_USHT;
extern fti_id_t FTI_UINT;
extern fti_id_t FTI_ULNG;
extern fti_id_t FTI_SFLT;
extern fti_id_t FTI_DBLE;
extern fti_id_t FTI_LDBE;

/* Makes a type of `size` bytes. */
int FTI_InitType(fti_id_t* type, int size);
/* Makes a type of `size` bytes that has fields, and returns it, or FTI_NSCS. A checkpoint holds the bytes of
 * a type, so fields are checked and then forgotten. */
fti_id_t FTI_InitCompositeType(const char* name, size_t size, FTIT_H5Group* h5g);
int FTI_AddScalarField(fti_id_t id, const char* name, fti_id_t fid, int64_t offset);
int FTI_AddVectorField(fti_id_t id, const char* name, fti_id_t tid, int64_t offset, int ndims,
                       int64_t* dim_sizes);

/* ---- begin and end -------------------------------------------------------------------------------- */

/* Reads the configuration file, which FTI and this library also write: its section [restart] says what the
 * next start is. Rank 0 alone reads and writes it. If it says that this is a restart, the newest checkpoint
 * that is whole on all ranks is found and checked. FTI_NREC if there is none: the program may go on, and
 * begins a new run. */
int FTI_Init(const char* configFile, MPI_Comm globalComm);
/* 0 on a first run, and after FTI_Recover. 1 on a restart after a failure, 2 on a restart from the checkpoint
 * that a run has kept at its end. */
int FTI_Status(void);
/* Waits for everything that is under way. With keep_last_ckpt the last checkpoint stays, otherwise all are
 * removed. */
int FTI_Finalize(void);

/* ---- what is saved -------------------------------------------------------------------------------- */

/* Protects `count` elements at `ptr` under an id. An id that is protected already gets this place and size.
 */
int FTI_Protect(int id, void* ptr, int64_t count, fti_id_t tid);
/* The bytes that an id has in the checkpoint to recover from, or in the last one; 0 if it is not in it. */
int64_t FTI_GetStoredSize(int id);
/* On a restart, gives the memory at `ptr` the size that the id has in the checkpoint. If the id is protected,
 * it is protected there. Returns the new place, or `ptr` where it stays as it is. */
void* FTI_Realloc(int id, void* ptr);

/* ---- checkpoints ---------------------------------------------------------------------------------- */

/* FTI_DONE if all ranks have saved. */
int FTI_Checkpoint(int id, int level);
/* On a restart, recovers. Otherwise takes a checkpoint if the configuration says that one is due. */
int FTI_Snapshot(void);

/* ---- recovering ----------------------------------------------------------------------------------- */

/* Fills everything that is protected. The ids and sizes must be those of the checkpoint; FTI_NREC otherwise,
 * and nothing was changed. */
int FTI_Recover(void);
/* Fills one id. FTI_RecoverVarInit comes before the first, FTI_RecoverVarFinalize after the last. */
int FTI_RecoverVarInit(void);
int FTI_RecoverVar(int id);
int FTI_RecoverVarFinalize(void);

/* ---- what this library does not have: these calls fail, and say so once ---------------------------------
 */

int FTI_InitICP(int id, int level, bool activate);
int FTI_AddVarICP(int varID);
int FTI_FinalizeICP(void);
int FTI_BitFlip(int datasetID);
int FTI_GetStageDir(char* stageDir, int maxLen);
int FTI_GetStageStatus(int ID);
int FTI_SendFile(const char* lpath, const char* rpath);
int FTI_setIDFromString(const char* name);
int FTI_getIDFromString(const char* name);
int FTI_SetAttribute(int id, FTIT_attribute attribute, FTIT_attributeFlag flag);
FTIT_allConfiguration FTI_GetConfig(const char* configFile, MPI_Comm globalComm);
int FTI_InitGroup(FTIT_H5Group* h5group, const char* name, FTIT_H5Group* parent);
int FTI_RenameGroup(FTIT_H5Group* h5group, const char* name);
int FTI_DefineDataset(int id, int rank, int64_t* dimLength, const char* name, FTIT_H5Group* h5group);
int FTI_DefineGlobalDataset(int id, int rank, FTIT_hsize_t* dimLength, const char* name,
                            FTIT_H5Group* h5group, fti_id_t tid);
int FTI_AddSubset(int id, int rank, FTIT_hsize_t* offset, FTIT_hsize_t* count, int did);
int FTI_UpdateGlobalDataset(int id, int rank, FTIT_hsize_t* dimLength);
int FTI_UpdateSubset(int id, int rank, FTIT_hsize_t* offset, FTIT_hsize_t* count, int did);
int FTI_RecoverDatasetDimension(int did);
FTIT_hsize_t* FTI_GetDatasetSpan(int did, int rank);
int FTI_GetDatasetRank(int did);

#ifdef __cplusplus
}
#endif

#endif
