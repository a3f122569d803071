#include "prefix.h"

#include <filesystem>
#include <tailrace_types.hpp>

namespace scr_on_tailrace {

namespace {

constexpr const char* own_directory = ".scr/";

std::string without_links(const std::string& path) {
    std::error_code error;
    const auto real = std::filesystem::weakly_canonical(path, error);
    return error ? path : real.string();
}

std::string outside_own(std::string key) {
    if (key.starts_with(own_directory))
        throw tailrace::Error(
            TAILRACE_INVALID_ARGUMENT,
            "the file " + key + " lies in .scr, which is the library's; choose another name");
    return key;
}

}  // namespace

void check_key(const std::string& key) {
    const std::filesystem::path path(key);
    const bool good = !key.empty() && key.find('\0') == std::string::npos && path.is_relative() &&
                      path.lexically_normal().string() == key && *path.begin() != ".." &&
                      *path.begin() != "." && path.has_filename() && !key.starts_with(own_directory);
    if (!good)
        throw tailrace::Error(TAILRACE_CORRUPT, "\"" + key + "\" is no name of a file below the prefix");
}

Prefix::Prefix(std::string path) : path_(std::move(path)), real_(without_links(path_)) {}

std::string absolute(const std::string& name) {
    return (std::filesystem::current_path() / name).lexically_normal().string();
}

std::string base_of(const std::string& path) {
    return std::filesystem::path(path).filename().string();
}

std::string Prefix::key_of(const std::string& name) const {
    const auto path = absolute(name);
    if (path.find('\n') != std::string::npos)
        throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, "the name " + path + " of a file has a line break");
    for (const auto* top : {&path_, &real_}) {
        const auto beginning = *top == "/" ? *top : *top + "/";
        if (path.starts_with(beginning) && path.size() > beginning.size() && !path.ends_with('/'))
            return outside_own(path.substr(beginning.size()));
    }
    throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, "the file " + path + " is not below the prefix " +
                                                         path_ + "; set SCR_PREFIX to a directory above it");
}

}  // namespace scr_on_tailrace
