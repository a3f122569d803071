// directories.h - directories that a configuration names, and those of ours below them.
//
// A path that a configuration names may lead over links. Below it everything is made by this library, so a
// link there was put there by somebody else, and is never followed. What stands in the way is named, with
// what to do. Everything here throws tailrace::Error.
#pragma once

#include <string>
#include <vector>

namespace on_tailrace {

// Throws if the path, which `key` of the configuration names, is no directory and cannot become one: a file
// or a broken link is in the way, or it is too long. Makes nothing.
void expect_room_for_directory(const std::string& key, const std::string& path);
// Makes the directory and those above it.
void make_named_directory(const std::string& key, const std::string& path);
// Makes TOP/A, TOP/A/B and so on for the names A, B. TOP is there.
void make_below(const std::string& top, const std::vector<std::string>& names);
// Whether TOP/A/B is a directory. Throws if a link or a file is in its place, or above it below TOP.
bool is_below(const std::string& top, const std::vector<std::string>& names);

}  // namespace on_tailrace
