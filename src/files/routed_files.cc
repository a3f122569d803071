#include "files/routed_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "format/original_files.h"

namespace tailrace::internal {

Result<std::string> RoutedFiles::route(std::string_view name) {
    TAILRACE_TRY(check_file_name(name));
    TAILRACE_ASSIGN(auto path, tree_->usable_path(name));
    const Status possible = names_.check(name);
    const bool known = possible.code() == Code::already_exists;
    if (!known) TAILRACE_TRY(possible);
    TAILRACE_TRY(tree_->make_directories_of(name));
    if (known) return path;
    TAILRACE_TRY(names_.add(name));
    files_.push_back({std::string(name), 0});
    return path;
}

uint64_t RoutedFiles::path_bytes(std::string_view name) const {
    return tree_->path_of(name).size() + 1;
}

Result<FoundFile> RoutedFiles::find(const std::string& name) const {
    auto found = tree_->look(name);
    if (found.status().code() != Code::not_found) return found;
    return Status(Code::invalid_argument,
                  fmt::format("the file \"{}\" was routed to '{}' and never written; write it, or do not "
                              "route it",
                              shortened(name), tree_->path_of(name)));
}

Result<std::vector<RegionSource>> RoutedFiles::sources(bool as_original) {
    std::vector<RegionSource> sources(1);
    if (as_original) sources.emplace_back().name = original_files_region;
    for (auto& file : files_) {
        TAILRACE_ASSIGN(const auto found, find(file.name));
        file.rights = found.rights;
        // Else it would show only when the part is captured.
        TAILRACE_TRY(tree_->open(file.name, found)
                         .status()
                         .with_context(fmt::format("the file \"{}\" cannot be saved; give its owner the "
                                                   "right to read it",
                                                   shortened(file.name))));
        auto& source = sources.emplace_back();
        source.name = file_region(file.name);
        source.file = FileBytes{found.bytes,
                                [tree = tree_, name = file.name, found] { return tree->open(name, found); }};
    }
    warn_of_others();
    table_ = encode_file_table(files_);
    sources.front().name = file_table_region;
    sources.front().memory = table_;
    return sources;
}

// Such as a second file that a library makes beside the one that it was asked for.
void RoutedFiles::warn_of_others() const {
    std::vector<std::string> others = tree_->names();
    std::erase_if(others, [&](const std::string& name) { return names_.contains(name); });
    if (others.empty()) return;
    log(LogLevel::warning,
        "{} in {} {} not routed and {} not saved, such as \"{}\": route every file that is to be saved",
        counted(others.size(), "file"), tree_->path(), others.size() == 1 ? "was" : "were",
        others.size() == 1 ? "is" : "are", shortened(others.front()));
}

}  // namespace tailrace::internal
