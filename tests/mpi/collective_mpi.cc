// Collective files over MPI: random lists and views on every number of simulated nodes, byte by byte against
// what one writer after the other would have left; and errors that all ranks hear of.
//
// collective_mpi DIRECTORY [funneled]
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <tailrace_mpi_collective.hpp>
#include <vector>

#include "aggregate/seeds.h"

namespace {

using tailrace::internal::below;
using tailrace::internal::Random;

int rank = 0, ranks = 1;
bool right = true;

void say(const std::string& what) {
    std::fprintf(stderr, "rank %d: %s (%s)\n", rank, what.c_str(), tailrace_last_error());
    right = false;
}
void expect(bool claim, const std::string& what) {
    if (!claim) say(what);
}

unsigned char byte_at(uint64_t offset, uint64_t salt) {
    return static_cast<unsigned char>((offset * 0x9e3779b97f4a7c15 + salt * 77) >> 56);
}

MPI_Info info_of(const std::vector<std::pair<std::string, std::string>>& hints) {
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    for (const auto& [key, value] : hints) MPI_Info_set(info, ("tailrace_" + key).c_str(), value.c_str());
    return info;
}

struct Setting {
    int ranks_per_node = 0;
    std::string local, layout, exchange;
    std::string describe() const {
        return std::to_string(ranks_per_node) + " ranks per node, local aggregators " + local + ", " + layout;
    }
};

tailrace_file* open(const std::string& path, const Setting& setting, tailrace_file_mode mode) {
    MPI_Info info = info_of({{"ranks_per_node", std::to_string(setting.ranks_per_node)},
                             {"local_aggregators", setting.local},
                             {"layout", setting.layout},
                             {"exchange", setting.exchange},
                             {"buffer_size", "8KiB"}});
    tailrace_file* file = nullptr;
    expect(tailrace_file_open(MPI_COMM_WORLD, path.c_str(), mode, info, &file) == TAILRACE_OK, "open");
    MPI_Info_free(&info);
    return file;
}

std::vector<unsigned char> content_of(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// Pieces of a range, each given to a rank or to nobody; the same on all ranks.
std::vector<std::vector<tailrace_file_piece>> deal(uint64_t seed) {
    Random random(seed);
    std::vector<std::vector<tailrace_file_piece>> lists(static_cast<size_t>(ranks));
    const uint64_t longest = below(random, 2) == 0 ? 4000 : 60;
    for (uint64_t at = 0; at < 40000;) {
        const uint64_t bytes = 1 + below(random, longest);
        const uint64_t owner = below(random, static_cast<uint64_t>(ranks) + 1);
        if (owner < lists.size()) lists[owner].push_back({at, bytes});
        at += bytes;
    }
    return lists;
}

void test_pieces(const std::string& path, const Setting& setting, uint64_t seed) {
    const auto lists = deal(seed);
    const auto& mine = lists[static_cast<size_t>(rank)];
    std::vector<unsigned char> data;
    for (const auto& piece : mine)
        for (uint64_t at = piece.offset; at < piece.offset + piece.bytes; ++at)
            data.push_back(byte_at(at, seed));
    const std::string title = "pieces, seed " + std::to_string(seed) + ", " + setting.describe();

    tailrace_file* file = open(path, setting, TAILRACE_FILE_WRITE);
    const uint64_t half = data.size() / 2;
    const tailrace_memory_piece memory[2] = {{data.data(), half}, {data.data() + half, data.size() - half}};
    expect(tailrace_file_write_pieces(file, mine.size(), mine.data(), 2, memory) == TAILRACE_OK,
           title + ": write");
    expect(tailrace_file_sync(file) == TAILRACE_OK, title + ": sync");
    if (rank == 0) {
        std::vector<unsigned char> expected;
        for (const auto& list : lists)
            for (const auto& piece : list) {
                expected.resize(std::max<size_t>(expected.size(), piece.offset + piece.bytes));
                for (uint64_t at = piece.offset; at < piece.offset + piece.bytes; ++at)
                    expected[at] = byte_at(at, seed);
            }
        expect(content_of(path) == expected, title + ": the file differs from a serial writer's");
    }
    MPI_Barrier(MPI_COMM_WORLD);

    // What the neighbour wrote, in the background.
    const auto& its = lists[static_cast<size_t>((rank + 1) % ranks)];
    uint64_t bytes = 0;
    for (const auto& piece : its) bytes += piece.bytes;
    std::vector<unsigned char> read(bytes);
    const tailrace_memory_piece target = {read.data(), bytes};
    tailrace_io* io = nullptr;
    expect(tailrace_file_start_read_pieces(file, its.size(), its.data(), 1, &target, &io) == TAILRACE_OK,
           title + ": start");
    uint64_t got = 0;
    expect(tailrace_io_wait(io, &got) == TAILRACE_OK && got == bytes, title + ": wait");
    size_t i = 0;
    bool same = true;
    for (const auto& piece : its)
        for (uint64_t at = piece.offset; at < piece.offset + piece.bytes; ++at)
            same = read[i++] == byte_at(at, seed) && same;
    expect(same, title + ": read");
    expect(tailrace_file_close(file) == TAILRACE_OK, title + ": close");
}

// A two-dimensional array of ints, a block of columns for every rank, from memory with a border.
void test_views(const std::string& path, const Setting& setting) {
    constexpr int rows = 40, columns = 9, border = 2, records = 3;
    const std::string title = "views, " + setting.describe();
    const int sizes[2] = {rows, columns * ranks}, subsizes[2] = {rows, columns},
              starts[2] = {0, columns * rank};
    const int memory_sizes[2] = {rows + 2 * border, columns + 2 * border},
              memory_starts[2] = {border, border};
    MPI_Datatype filetype, memorytype;
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &filetype);
    MPI_Type_create_subarray(2, memory_sizes, subsizes, memory_starts, MPI_ORDER_C, MPI_INT, &memorytype);
    const auto value = [&](int record, int row, int column) { return (record * 1000 + row) * 1000 + column; };
    const auto at = [&](int row, int column) {
        return static_cast<size_t>((row + border) * memory_sizes[1] + column + border);
    };
    std::vector<int> memory(static_cast<size_t>(memory_sizes[0] * memory_sizes[1]), -1);
    constexpr uint64_t displacement = 100, record_bytes = uint64_t{rows} * columns * sizeof(int);

    tailrace_file* file = open(path, setting, TAILRACE_FILE_WRITE);
    expect(tailrace_file_set_view(file, displacement, filetype) == TAILRACE_OK, title + ": view");
    MPI_Type_free(&filetype);  // the file keeps its own
    for (int record = 0; record < records; ++record) {
        for (int row = 0; row < rows; ++row)
            for (int column = 0; column < columns; ++column)
                memory[at(row, column)] = value(record, row, columns * rank + column);
        expect(tailrace_file_write_view(file, static_cast<uint64_t>(record) * record_bytes, memory.data(), 1,
                                        memorytype) == TAILRACE_OK,
               title + ": write");
    }
    // Back, the last record but for its beginning, in the middle of a block, and beyond the end.
    constexpr int skipped = 2 * columns + 4;
    std::vector<int> back(memory.size(), -7);
    uint64_t got = 0;
    const uint64_t position = (records - 1) * record_bytes + skipped * sizeof(int);
    expect(tailrace_file_read_view(file, position, back.data(), 1, memorytype, &got) == TAILRACE_OK,
           title + ": read");
    bool same = true;
    for (int i = 0; i < rows * columns - skipped; ++i) {
        const int from = i + skipped;
        same = same && back[at(i / columns, i % columns)] ==
                           value(records - 1, from / columns, columns * rank + from % columns);
    }
    expect(same, title + ": what was read");
    expect(got == record_bytes - skipped * sizeof(int), title + ": the count ends with the file");
    expect(back[0] == -7, title + ": the border is left alone");
    // Programs allocate it: a field is added by taking words from `reserved`.
    static_assert(offsetof(tailrace_file_statistics, total_seconds) == 152 &&
                  sizeof(tailrace_file_statistics) == 264);
    tailrace_file_statistics statistics;
    expect(tailrace_file_get_statistics(file, &statistics) == TAILRACE_OK &&
               statistics.calls == records + 1 && tailrace_file_describe(file, &statistics) != nullptr,
           title + ": statistics");
    expect(tailrace_file_close(file) == TAILRACE_OK, title + ": close");
    MPI_Type_free(&memorytype);
    if (rank != 0) return;
    const std::vector<unsigned char> content = content_of(path);
    bool as_serial = content.size() == displacement + records * record_bytes * static_cast<size_t>(ranks);
    for (int i = 0; as_serial && i < records * rows * columns * ranks; ++i) {
        int found = 0;
        std::memcpy(&found, content.data() + displacement + static_cast<size_t>(i) * sizeof(int),
                    sizeof found);
        const int row = i / (columns * ranks);
        as_serial = found == value(row / rows, row % rows, i % (columns * ranks));
    }
    expect(as_serial, title + ": the file differs from a serial writer's");
}

// The C++ interface, which is a thin one: every function once.
void test_cpp(const std::string& path) try {
    const uint64_t bytes = 64, begin = static_cast<uint64_t>(rank) * bytes;
    std::vector<unsigned char> data(bytes, static_cast<unsigned char>(rank + 1)), back(bytes);
    const tailrace_file_piece piece{begin, bytes};
    const tailrace_memory_piece source{data.data(), bytes}, target{back.data(), bytes};
    tailrace::CollectiveFile opened(MPI_COMM_WORLD, path, TAILRACE_FILE_WRITE);
    tailrace::CollectiveFile file = std::move(opened);
    file.write({&piece, 1}, {&source, 1});
    tailrace::PendingIo write = file.start_write({&piece, 1}, {&source, 1});
    tailrace::PendingIo read = file.start_read({&piece, 1}, {&target, 1});
    expect(write.wait() == bytes && read.wait() == bytes && back == data, "C++: in the background");
    file.set_view(begin, MPI_BYTE);
    file.write(0, data.data(), bytes, MPI_BYTE);
    file.start_write(0, data.data(), bytes, MPI_BYTE).wait();
    back.assign(bytes, 0);
    expect(file.start_read(0, back.data(), bytes, MPI_BYTE).wait() == bytes && back == data, "C++: a view");
    expect(file.read(0, back.data(), bytes, MPI_BYTE) == bytes, "C++: a view, read");
    expect(file.read({&piece, 1}, {&target, 1}) == bytes, "C++: pieces, read");
    file.sync();
    expect(file.describe(file.statistics()).find(path) == 0, "C++: statistics");
    file.close();
    try {
        tailrace::CollectiveFile nowhere(MPI_COMM_WORLD, path + "/nowhere", TAILRACE_FILE_READ);
        say("C++: opening what is not there is no error");
    } catch (const tailrace::Error& error) {
        expect(std::string(error.what()).find("nowhere") != std::string::npos, "C++: the sentence");
    }
} catch (const tailrace::Error& error) {
    say(std::string("C++: ") + error.what());
}

void test_started_without_a_place(const std::string& path) {
    tailrace_file* file = open(path, {0, "auto", "contiguous", "auto"}, TAILRACE_FILE_WRITE);
    tailrace_io* io = nullptr;
    const bool last = rank == ranks - 1;
    const tailrace_code code =
        tailrace_file_start_write_pieces(file, 0, nullptr, 0, nullptr, last ? nullptr : &io);
    const tailrace_code ended = last ? code : tailrace_io_wait(io, nullptr);
    expect(ended == TAILRACE_INVALID_ARGUMENT,
           "no place for a started call, on one rank, is every rank's error");
    expect(tailrace_file_close(file) == TAILRACE_OK, "close");
}

void test_errors(const std::string& directory) {
    tailrace_file* file = nullptr;
    const std::string nowhere = directory + "/nowhere/file";
    expect(tailrace_file_open(MPI_COMM_WORLD, nowhere.c_str(), TAILRACE_FILE_WRITE, MPI_INFO_NULL, &file) ==
               TAILRACE_NOT_FOUND,
           "a directory that is not there is not found by anyone");
    MPI_Info info = info_of({{"local_agregators", "1"}});
    expect(tailrace_file_open(MPI_COMM_WORLD, (directory + "/errors").c_str(), TAILRACE_FILE_WRITE,
                              rank == ranks - 1 ? info : MPI_INFO_NULL, &file) == TAILRACE_INVALID_ARGUMENT,
           "a setting that does not exist, on one rank, is every rank's error");
    MPI_Info_free(&info);

    file = open(directory + "/errors", {0, "auto", "contiguous", "auto"}, TAILRACE_FILE_WRITE);
    const tailrace_file_piece unordered[2] = {{100, 1}, {50, 1}};
    char bytes[2] = {};
    const tailrace_memory_piece memory = {bytes, 2};
    const size_t count = rank == ranks - 1 ? 2 : 0;
    expect(tailrace_file_write_pieces(file, count, unordered, count > 0 ? 1 : 0, &memory) ==
                   TAILRACE_INVALID_ARGUMENT &&
               std::strstr(tailrace_last_error(), "non-decreasing order") != nullptr,
           "one rank's list that makes no sense is every rank's error");
    const bool asks_too_much = rank == ranks - 1;
    expect(tailrace_file_write_pieces(file, asks_too_much ? SIZE_MAX : 0, unordered, 0, nullptr) ==
               TAILRACE_OUT_OF_MEMORY,
           "one rank's list for which there is no memory is every rank's error");
    expect(tailrace_file_set_view(file, 0, MPI_INT) == TAILRACE_OK, "view");
    expect(tailrace_file_write_view(file, 0, bytes, 0, MPI_INT) == TAILRACE_OK, "the file goes on");
    expect(tailrace_file_write_view(file, 0, bytes, rank == 0 ? UINT64_MAX / 4 + 1 : 0, MPI_INT) ==
               TAILRACE_INVALID_ARGUMENT,
           "one rank's count that no file can hold is every rank's error");
    expect(tailrace_file_set_view(file, 0, MPI_DATATYPE_NULL) == TAILRACE_INVALID_ARGUMENT,
           "a view of nothing");
    expect(tailrace_file_write_view(file, 0, bytes, 1, rank == 0 ? MPI_DATATYPE_NULL : MPI_INT) ==
               TAILRACE_INVALID_ARGUMENT,
           "one rank's memory without a type is every rank's error");
    const tailrace_file_piece ordered = {0, 2};
    const tailrace_memory_piece nowhere_at_all = {nullptr, 2};
    expect(tailrace_file_write_pieces(file, rank == 0 ? 1 : 0, &ordered, rank == 0 ? 1 : 0,
                                      &nowhere_at_all) == TAILRACE_INVALID_ARGUMENT,
           "one rank's memory at NULL is every rank's error");
    expect(tailrace_file_close(file) == TAILRACE_OK, "close");
    expect(tailrace_file_close(file) == TAILRACE_FAILED_STATE, "a closed file is recognised");
    expect(tailrace_file_open(MPI_COMM_WORLD, (directory + "/errors").c_str(),
                              static_cast<tailrace_file_mode>(rank == ranks - 1 ? 7 : 3), MPI_INFO_NULL,
                              &file) == TAILRACE_INVALID_ARGUMENT,
           "a mode that does not exist, on one rank, is every rank's error");

    const bool last = rank == ranks - 1;
    const std::string path = directory + "/errors";
    expect(tailrace_file_open(MPI_COMM_WORLD, last ? nullptr : path.c_str(), TAILRACE_FILE_WRITE,
                              MPI_INFO_NULL, &file) == TAILRACE_INVALID_ARGUMENT,
           "NULL for a path, on one rank, is every rank's error");
    expect(tailrace_file_open(MPI_COMM_WORLD, path.c_str(), TAILRACE_FILE_WRITE, MPI_INFO_NULL,
                              last ? nullptr : &file) == TAILRACE_INVALID_ARGUMENT,
           "no place for the file, on one rank, is every rank's error");
    info = info_of({{"layout", "cyclic"}});
    if (ranks > 1)
        expect(tailrace_file_open(MPI_COMM_WORLD, path.c_str(), TAILRACE_FILE_WRITE,
                                  last ? info : MPI_INFO_NULL, &file) == TAILRACE_INVALID_ARGUMENT &&
                   std::strstr(tailrace_last_error(), "rank 0 has tailrace_layout = contiguous, but rank") !=
                       nullptr,
               "settings that differ are told by their names");
    MPI_Info_free(&info);
    test_started_without_a_place(path);
}

// A file is opened by most ranks when they first need it, by when the program may have changed its directory.
void test_relative_path(const std::string& directory) {
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::create_directories(directory + "/elsewhere");
    std::filesystem::current_path(directory);
    tailrace_file* file = open("relative", {0, "auto", "contiguous", "never"}, TAILRACE_FILE_WRITE);
    std::filesystem::current_path(directory + "/elsewhere");
    const std::vector<char> bytes(100, static_cast<char>(rank + 1));
    const tailrace_file_piece piece{static_cast<uint64_t>(rank) * 100, 100};
    const tailrace_memory_piece memory{const_cast<char*>(bytes.data()), 100};
    expect(tailrace_file_write_pieces(file, 1, &piece, 1, &memory) == TAILRACE_OK, "a relative path: write");
    expect(tailrace_file_close(file) == TAILRACE_OK, "a relative path: close");
    std::filesystem::current_path(before);
    if (rank != 0) return;
    const auto content = content_of(directory + "/relative");
    expect(content.size() == static_cast<size_t>(ranks) * 100 && content.back() == ranks,
           "a relative path: all ranks' bytes are in one file");
    expect(!std::filesystem::exists(directory + "/elsewhere/relative"),
           "a relative path: there is only one file");
}

}  // namespace

int main(int argc, char** argv) {
    const bool funneled = argc > 2 && std::strcmp(argv[2], "funneled") == 0;
    int provided = 0;
    MPI_Init_thread(&argc, &argv, funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const std::string directory = argv[1];

    int number = 0;
    const char* locals[] = {"1", "all", "2"};
    for (const int nodes : {1, 2, 4}) {
        if (nodes > ranks) continue;
        Setting setting{(ranks + nodes - 1) / nodes, locals[number % 3],
                        number % 2 == 0 ? "contiguous" : "cyclic", "always"};
        // Many ranks on few cores take long over what few ranks show as well.
        for (uint64_t seed = 1; seed <= (ranks > 4 ? 1 : 2); ++seed) {
            const auto path = directory + "/pieces" + std::to_string(ranks) + "." + std::to_string(number++);
            test_pieces(path, setting, seed + static_cast<uint64_t>(nodes) * 10);
            setting.local = locals[number % 3];
        }
        test_views(directory + "/views" + std::to_string(ranks) + "." + std::to_string(number++), setting);
    }
    test_errors(directory);
    test_relative_path(directory);
    test_cpp(directory + "/cpp");

    int all_right = 0, mine = right ? 1 : 0;
    MPI_Allreduce(&mine, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    tailrace_file* left = open(directory + "/errors", {0, "auto", "contiguous", "auto"}, TAILRACE_FILE_WRITE);
    MPI_Finalize();
    const bool refused = tailrace_file_sync(left) == TAILRACE_FAILED_STATE &&
                         tailrace_file_close(left) == TAILRACE_FAILED_STATE;
    if (!refused) say("a file is used after MPI_Finalize");
    return all_right == 1 && refused ? 0 : 1;
}
