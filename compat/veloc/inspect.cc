// veloc-inspect: what is in a file in which VELOC itself has put the regions of a rank. (tailrace's own
// checkpoints are shown by `tailrace show`.)
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory_file.h"

using namespace veloc_on_tailrace;

namespace {

constexpr const char* usage =
    "usage: veloc-inspect --header --ckpt FILE               prints each id with its bytes\n"
    "       veloc-inspect --extract ID [--size N] --ckpt FILE  writes the region, or its first N bytes, to "
    "stdout\n";

struct Request {
    bool header = false;
    std::optional<int32_t> extract;
    std::optional<uint64_t> size;
    std::string file;
};

template <class Number>
bool parse(std::string_view text, std::optional<Number>& into) {
    Number value{};
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return false;
    into = value;
    return true;
}

std::optional<Request> request_of(const std::vector<std::string_view>& arguments) {
    Request request;
    for (size_t i = 0; i < arguments.size(); ++i) {
        const auto option = arguments[i];
        if (option == "--header") {
            request.header = true;
            continue;
        }
        if (++i == arguments.size()) return std::nullopt;
        const auto value = arguments[i];
        if (option == "--ckpt") {
            request.file = value;
        } else if (option == "--extract") {
            if (!parse(value, request.extract)) return std::nullopt;
        } else if (option != "--size" || !parse(value, request.size)) {
            return std::nullopt;
        }
    }
    if (request.file.empty() || request.header == request.extract.has_value()) return std::nullopt;
    return request;
}

void copy(std::istream& in, uint64_t bytes) {
    std::vector<char> buffer(1 << 20);
    while (bytes > 0) {
        const auto piece = static_cast<std::streamsize>(std::min<uint64_t>(bytes, buffer.size()));
        if (!in.read(buffer.data(), piece))
            throw NoMemoryFile("the file cannot be read to the end of the region");
        if (std::fwrite(buffer.data(), 1, static_cast<size_t>(piece), stdout) != static_cast<size_t>(piece))
            return;  // main() finds it
        bytes -= static_cast<uint64_t>(piece);
    }
}

void answer(const Request& request) {
    std::ifstream in(request.file, std::ios::binary);
    if (!in) throw NoMemoryFile(request.file + " cannot be opened");
    const auto regions = read_head(in, std::filesystem::file_size(request.file), request.file);
    if (request.header) {
        for (const auto& region : regions)
            std::printf("%d %llu\n", region.id, static_cast<unsigned long long>(region.bytes));
        return;
    }
    const auto found = std::find_if(regions.begin(), regions.end(), [&](const StoredRegion& region) {
        return region.id == *request.extract;
    });
    if (found == regions.end())
        throw NoMemoryFile(request.file + " has no id " + std::to_string(*request.extract));
    in.seekg(static_cast<std::streamoff>(found->offset));
    copy(in, std::min(found->bytes, request.size.value_or(found->bytes)));
}

}  // namespace

int main(int argc, char** argv) {
    const auto request = request_of({argv + 1, argv + argc});
    if (!request) {
        std::fputs(usage, stderr);
        return 2;
    }
    try {
        answer(*request);
        if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
        std::fputs("veloc-inspect: the output cannot be written\n", stderr);
        return 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "veloc-inspect: %s\n", error.what());
        return 1;
    }
}
