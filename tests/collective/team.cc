#include "collective/team.h"

#include <gtest/gtest.h>

#include <thread>

#include "transport/in_process.h"

namespace tailrace::internal::collective {

std::vector<Status> run_team(const std::vector<std::string>& hosts, const std::shared_ptr<Storage>& storage,
                             const Options& options,
                             const std::function<Status(int rank, CollectiveFile& file)>& body) {
    auto transports = make_in_process_transports(hosts);
    std::vector<Status> outcomes(hosts.size());
    {
        std::vector<std::jthread> threads;
        for (size_t rank = 0; rank < hosts.size(); ++rank) {
            threads.emplace_back([&, rank] {
                auto file = open_collective_file(std::shared_ptr<Transport>(std::move(transports[rank])),
                                                 storage, team_path, options);
                outcomes[rank] = file.ok() ? body(static_cast<int>(rank), **file) : file.status();
                if (file.ok() && outcomes[rank].ok()) outcomes[rank] = (*file)->close();
            });
        }
    }
    return outcomes;
}

MemoryList Data::memory(size_t pieces) {
    std::vector<MemoryList::Memory> cut;
    size_t begin = 0;
    for (size_t i = 1; i <= pieces; ++i) {
        const size_t end = stream.size() * i / pieces;
        cut.push_back(std::span(stream).subspan(begin, end - begin));
        begin = end;
    }
    return MemoryList(std::move(cut));
}

Data data_for(const std::vector<Request>& requests, uint64_t salt) {
    Data data;
    for (const Request& request : requests)
        for (uint64_t at = request.offset; at < request.end(); ++at) data.stream.push_back(byte_at(at, salt));
    return data;
}

Data empty_data_for(const std::vector<Request>& requests) {
    Data data;
    data.stream.assign(static_cast<size_t>(total_bytes(requests)), std::byte{0xee});
    return data;
}

std::vector<std::byte> whole_file(Storage& storage, const std::string& path) {
    auto file = storage.open(path, {Access::read, DirectIo::off});
    EXPECT_TRUE(file.ok());
    if (!file.ok()) return {};
    std::vector<std::byte> bytes(static_cast<size_t>(*(*file)->size()));
    EXPECT_TRUE((*file)->read_at(bytes, 0).ok());
    return bytes;
}

}  // namespace tailrace::internal::collective
