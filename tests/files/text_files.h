// Files of text, as a program writes and reads them.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace tailrace::internal::test {

inline void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}
inline std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

}  // namespace tailrace::internal::test
