// The list of a rank's files, as an epoch of the bypass way has it.
#include <algorithm>
#include <charconv>

#include "dataset_files.h"

namespace scr_on_tailrace {

std::string encode(const std::vector<Listed>& files) {
    std::string text;
    for (const auto& file : files) text += std::to_string(file.bytes) + " " + file.key + "\n";
    return text;
}

std::vector<Listed> decode(const std::string& text) {
    std::vector<Listed> files;
    for (size_t begin = 0; begin < text.size();) {
        const auto end = std::min(text.find('\n', begin), text.size());
        Listed file{};
        const auto* last = text.data() + end;
        const auto parsed = std::from_chars(text.data() + begin, last, file.bytes);
        if (parsed.ec != std::errc() || last - parsed.ptr < 2 || *parsed.ptr != ' ')
            throw tailrace::Error(TAILRACE_CORRUPT, "\"" + text.substr(begin, end - begin) +
                                                        "\" is no line of a list of files");
        file.key.assign(parsed.ptr + 1, last);
        check_key(file.key);
        files.push_back(std::move(file));
        begin = end + 1;
    }
    return files;
}

}  // namespace scr_on_tailrace
