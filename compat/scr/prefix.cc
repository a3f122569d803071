#include "prefix.h"

#include <filesystem>
#include <tailrace_types.hpp>

namespace scr_on_tailrace {

namespace {

std::string without_links(const std::string& path) {
    std::error_code error;
    const auto real = std::filesystem::weakly_canonical(path, error);
    return error ? path : real.string();
}

}  // namespace

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
            return path.substr(beginning.size());
    }
    throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, "the file " + path + " is not below the prefix " +
                                                         path_ + "; set SCR_PREFIX to a directory above it");
}

}  // namespace scr_on_tailrace
