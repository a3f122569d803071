// The subroutines of scrf.h: the functions of scr.h for programs in Fortran. Names end with an underscore.
// Behind all arguments come the lengths of the texts, by value. A text is filled with blanks.
#include <scr.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace {

constexpr int failure = 1;

std::string text_of(const char* text, size_t length) {
    while (length > 0 && text[length - 1] == ' ') --length;
    return {text, length};
}

// False if it does not fit; then it is cut.
bool fill(const char* text, char* target, size_t length) {
    const size_t bytes = std::strlen(text);
    std::memset(target, ' ', length);
    std::memcpy(target, text, std::min(bytes, length));
    return bytes <= length;
}

}  // namespace

extern "C" {

// GFortran since 8 and the others pass lengths as size_t.
void scr_init_(int* error) {
    *error = SCR_Init();
}
void scr_finalize_(int* error) {
    *error = SCR_Finalize();
}
void scr_get_version_(char* version, int* error, size_t length) {
    *error = fill(SCR_Get_version(), version, length) ? SCR_SUCCESS : failure;
}
void scr_should_exit_(int* flag, int* error) {
    *error = SCR_Should_exit(flag);
}

// `value` is blank if nothing was asked for, or if there is nothing.
void scr_config_(const char* line, char* value, int* error, size_t line_length, size_t value_length) {
    const std::unique_ptr<char, void (*)(void*)> found(
        const_cast<char*>(SCR_Config(text_of(line, line_length).c_str())), std::free);
    *error = fill(found ? found.get() : "", value, value_length) ? SCR_SUCCESS : failure;
}

void scr_route_file_(const char* name, char* file, int* error, size_t name_length, size_t file_length) {
    char path[SCR_MAX_FILENAME] = "";
    *error = SCR_Route_file(text_of(name, name_length).c_str(), path);
    if (!fill(path, file, file_length)) *error = failure;
}

void scr_have_restart_(int* flag, char* name, int* error, size_t length) {
    char found[SCR_MAX_FILENAME] = "";
    *error = SCR_Have_restart(flag, found);
    if (!fill(found, name, length)) *error = failure;
}
void scr_start_restart_(char* name, int* error, size_t length) {
    char found[SCR_MAX_FILENAME] = "";
    *error = SCR_Start_restart(found);
    if (*error == SCR_SUCCESS && !fill(found, name, length)) *error = failure;
}
void scr_complete_restart_(const int* valid, int* error) {
    *error = SCR_Complete_restart(*valid);
}

void scr_need_checkpoint_(int* flag, int* error) {
    *error = SCR_Need_checkpoint(flag);
}
void scr_start_checkpoint_(int* error) {
    *error = SCR_Start_checkpoint();
}
void scr_complete_checkpoint_(const int* valid, int* error) {
    *error = SCR_Complete_checkpoint(*valid);
}
void scr_start_output_(const char* name, const int* flags, int* error, size_t length) {
    *error = SCR_Start_output(text_of(name, length).c_str(), *flags);
}
void scr_complete_output_(const int* valid, int* error) {
    *error = SCR_Complete_output(*valid);
}

void scr_current_(const char* name, int* error, size_t length) {
    *error = SCR_Current(text_of(name, length).c_str());
}
void scr_drop_(const char* name, int* error, size_t length) {
    *error = SCR_Drop(text_of(name, length).c_str());
}
void scr_delete_(const char* name, int* error, size_t length) {
    *error = SCR_Delete(text_of(name, length).c_str());
}

}  // extern "C"
