// The functions of fti.h that tailrace does not have. They fail, and the first call of each says so.
#include <fti.h>

#include <atomic>
#include <string>

#include "common/log.h"

namespace {

// Each caller has its own `told`.
int missing(const char* call, std::atomic<bool>& told, const char* instead) {
    if (!told.exchange(true))
        on_tailrace::complain(
            call, std::string("tailrace does not have this call, and nothing was done; ") + instead);
    return FTI_NSCS;
}

constexpr const char* no_files = "copy the file with the program's own means";
constexpr const char* no_hdf5 = "protect memory with FTI_Protect, and read it by `tailrace extract`";
constexpr const char* no_parts = "take the whole checkpoint with FTI_Checkpoint";
constexpr const char* no_names = "protect by numbers";

}  // namespace

#define MISSING(call, instead)            \
    static std::atomic<bool> told{false}; \
    return missing(call, told, instead)

int FTI_InitICP(int, int, bool) {
    MISSING("FTI_InitICP", no_parts);
}
int FTI_AddVarICP(int) {
    MISSING("FTI_AddVarICP", no_parts);
}
int FTI_FinalizeICP(void) {
    MISSING("FTI_FinalizeICP", no_parts);
}
int FTI_BitFlip(int) {
    MISSING("FTI_BitFlip", "change the memory in the program");
}
int FTI_GetStageDir(char*, int) {
    MISSING("FTI_GetStageDir", no_files);
}
int FTI_GetStageStatus(int) {
    MISSING("FTI_GetStageStatus", no_files);
}
int FTI_SendFile(const char*, const char*) {
    MISSING("FTI_SendFile", no_files);
}
int FTI_setIDFromString(const char*) {
    MISSING("FTI_setIDFromString", no_names);
}
int FTI_getIDFromString(const char*) {
    MISSING("FTI_getIDFromString", no_names);
}
int FTI_SetAttribute(int, FTIT_attribute, FTIT_attributeFlag) {
    MISSING("FTI_SetAttribute", no_names);
}
FTIT_allConfiguration FTI_GetConfig(const char*, MPI_Comm) {
    static std::atomic<bool> told{false};
    missing("FTI_GetConfig", told, "read the configuration file in the program");
    return {};
}
int FTI_InitGroup(FTIT_H5Group*, const char*, FTIT_H5Group*) {
    MISSING("FTI_InitGroup", no_hdf5);
}
int FTI_RenameGroup(FTIT_H5Group*, const char*) {
    MISSING("FTI_RenameGroup", no_hdf5);
}
int FTI_DefineDataset(int, int, int64_t*, const char*, FTIT_H5Group*) {
    MISSING("FTI_DefineDataset", no_hdf5);
}
int FTI_DefineGlobalDataset(int, int, FTIT_hsize_t*, const char*, FTIT_H5Group*, fti_id_t) {
    MISSING("FTI_DefineGlobalDataset", no_hdf5);
}
int FTI_AddSubset(int, int, FTIT_hsize_t*, FTIT_hsize_t*, int) {
    MISSING("FTI_AddSubset", no_hdf5);
}
int FTI_UpdateGlobalDataset(int, int, FTIT_hsize_t*) {
    MISSING("FTI_UpdateGlobalDataset", no_hdf5);
}
int FTI_UpdateSubset(int, int, FTIT_hsize_t*, FTIT_hsize_t*, int) {
    MISSING("FTI_UpdateSubset", no_hdf5);
}
int FTI_RecoverDatasetDimension(int) {
    MISSING("FTI_RecoverDatasetDimension", no_hdf5);
}
FTIT_hsize_t* FTI_GetDatasetSpan(int, int) {
    static std::atomic<bool> told{false};
    missing("FTI_GetDatasetSpan", told, no_hdf5);
    return nullptr;
}
int FTI_GetDatasetRank(int) {
    MISSING("FTI_GetDatasetRank", no_hdf5);
}
