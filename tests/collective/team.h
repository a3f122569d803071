// Team: ranks that are threads of this process and share a file, for tests of collective calls. What a rank
// writes follows from the offset alone, or from the rank too, so that what is read can be checked.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/collective_file.h"
#include "storage/storage.h"

namespace tailrace::internal::collective {

// Runs body(rank, file) on every rank at once; the file is open on all and is closed afterwards. Returns what
// open() came to on each rank, and then what the body returned.
std::vector<Status> run_team(const std::vector<std::string>& hosts, const std::shared_ptr<Storage>& storage,
                             const Options& options,
                             const std::function<Status(int rank, CollectiveFile& file)>& body);

inline std::byte byte_at(uint64_t offset, uint64_t salt = 0) {
    return static_cast<std::byte>((offset * 0x9e3779b97f4a7c15 + salt * 77) >> 56);
}

// A rank's data for its requests: the stream, and an access over it in pieces of random sizes.
struct Data {
    std::vector<std::byte> stream;
    // Cuts the stream into `pieces` pieces that lie in the stream's order.
    MemoryList memory(size_t pieces = 1);
};
Data data_for(const std::vector<Request>& requests, uint64_t salt = 0);
Data empty_data_for(const std::vector<Request>& requests);

// The whole file; empty when it cannot be read.
std::vector<std::byte> whole_file(Storage& storage, const std::string& path);

inline constexpr const char* team_path = "/shared";

}  // namespace tailrace::internal::collective
