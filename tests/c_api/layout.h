// The layout of structs as lines of text, against a list that is kept. A field is added by taking words from
// `reserved`; its line is added to the list, and no other line changes but that of `reserved`.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>

// Into the stream `lines`.
#define FIELD(type, name) \
    lines << line_of(#type "." #name, offsetof(type, name), sizeof(static_cast<type*>(nullptr)->name))
#define WHOLE(type) lines << line_of(#type, 0, sizeof(type))

inline std::string line_of(const char* name, size_t offset, size_t bytes) {
    return std::string(name) + " at " + std::to_string(offset) + ", " + std::to_string(bytes) + " bytes\n";
}

inline void expect_kept(const std::string& layout, const char* path) {
    std::ifstream file(path);
    ASSERT_TRUE(file.is_open()) << path;
    std::ostringstream kept;
    kept << file.rdbuf();
    EXPECT_EQ(layout, kept.str());
}
