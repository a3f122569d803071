#include "collective/open_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/units.h"
#include "collective/hints.h"
#include "collective/shared_memory.h"
#include "threads/executor.h"

namespace tailrace::internal::collective {

namespace {

constexpr uint32_t longest_name_bytes = 4096;

// Borders of domains lie at multiples of the file system's block, within these limits.
constexpr uint64_t least_alignment = 4096;
constexpr uint64_t greatest_alignment = MiB;

// One rank's introduction.
struct Introduction {
    std::string host;
    SharedName memory;  // a page with the token in it; process 0: none
    uint64_t token = 0;
    std::string options;
    uint64_t block_bytes = 4096;
    std::string file_system;
};

constexpr std::string_view mode_names[] = {"read", "write", "create new", "write, existing"};

// Everything that must be equal on all ranks, one line each.
std::string describe(const Options& options) {
    std::string lines = fmt::format("mode = {}", mode_names[static_cast<size_t>(options.mode)]);
    for (const auto& [name, value] : hints_in_effect(options))
        lines += fmt::format("\ntailrace_{} = {}", name, value);
    return lines;
}

// The first lines that differ between two descriptions.
std::pair<std::string_view, std::string_view> difference(std::string_view a, std::string_view b) {
    const auto end_of_line = [](std::string_view text) { return std::min(text.find('\n'), text.size()); };
    while (!a.empty() && !b.empty()) {
        const std::string_view line_of_a = a.substr(0, end_of_line(a)),
                               line_of_b = b.substr(0, end_of_line(b));
        if (line_of_a != line_of_b) return {line_of_a, line_of_b};
        a.remove_prefix(std::min(line_of_a.size() + 1, a.size()));
        b.remove_prefix(std::min(line_of_b.size() + 1, b.size()));
    }
    return {a, b};
}

template <class Codec>
void fields(Codec& codec, Introduction& introduction) {
    codec.text(introduction.host, longest_name_bytes);
    fields(codec, introduction.memory);
    codec(introduction.token);
    codec.text(introduction.options, longest_name_bytes);
    codec(introduction.block_bytes);
    codec.text(introduction.file_system, longest_name_bytes);
}

std::vector<std::byte> encode(const Introduction& introduction) {
    ByteWriter writer;
    put_fields(writer, introduction);
    return writer.take();
}

Result<Introduction> decode(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    Introduction introduction;
    get_fields(reader, introduction);
    if (!reader.at_end()) return Status(Code::transport, "a rank sent something other than its introduction");
    return introduction;
}

// Whether the memory that can be attached to is really that rank's. Process numbers of another pid
// namespace may lead to another process's memory.
bool can_share(const Introduction& peer) {
    if (peer.memory.process == 0) return false;
    auto attached = AttachedMemory::attach(peer.memory);
    if (!attached.ok()) return false;
    return std::memcmp(attached->memory().data(), &peer.token, sizeof peer.token) == 0;
}

// Every rank introduces itself, with a page of memory to try.
Introduction introduction_of(const Transport& transport, const Options& options, const SpaceInfo& space,
                             SharedMemory& page) {
    Introduction me;
    me.host = transport.host();
    me.token = random_number() | 1;
    me.options = describe(options);
    me.block_bytes = space.block_bytes;
    me.file_system = space.file_system;
    if (options.shared_memory && !SharedMemory::is_limited()) {
        if (auto made = SharedMemory::create(sizeof me.token); made.ok()) {
            page = std::move(*made);
            std::memcpy(page.memory().data(), &me.token, sizeof me.token);
            me.memory = page.name();
        }
    }
    return me;
}

Status check_equal_options(const std::vector<Introduction>& all, const std::string& path) {
    for (size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank].options == all[0].options) continue;
        const auto [first, other] = difference(all[0].options, all[rank].options);
        return Status(
            Code::invalid_argument,
            fmt::format("opening '{}' collectively: rank 0 has {}, but rank {} has {}; they must be "
                        "equal on all ranks",
                        path, first, rank, other));
    }
    return {};
}

// Every rank tries the memory of the node's first rank, and the first rank tries the memory of all.
bool shares_memory(const Topology& topology, int rank, const std::vector<Introduction>& all) {
    const int node = topology.node_of_rank[static_cast<size_t>(rank)];
    const std::vector<int>& of_node = topology.ranks_of_node[static_cast<size_t>(node)];
    if (rank != of_node.front()) return can_share(all[static_cast<size_t>(of_node.front())]);
    return std::all_of(of_node.begin(), of_node.end(),
                       [&](int other) { return can_share(all[static_cast<size_t>(other)]); });
}

}  // namespace

Result<OpenAgreement> agree_on_open(Transport& transport, const Options& options, const Status& mine,
                                    const SpaceInfo& space, const std::string& path) {
    TAILRACE_TRY(agree(transport, mine));

    SharedMemory page;
    const Introduction me = introduction_of(transport, options, space, page);
    TAILRACE_ASSIGN(const auto answers, transport.allgather(encode(me)));
    std::vector<Introduction> all;
    std::vector<std::string> hosts;
    for (const std::vector<std::byte>& answer : answers) {
        TAILRACE_ASSIGN(Introduction introduction, decode(answer));
        hosts.push_back(introduction.host);
        all.push_back(std::move(introduction));
    }
    TAILRACE_TRY(check_equal_options(all, path));

    OpenAgreement agreement;
    agreement.topology = make_topology(hosts, options.ranks_per_node);
    agreement.block_bytes =
        std::clamp(std::bit_ceil(all[0].block_bytes), least_alignment, greatest_alignment);
    agreement.file_system = all[0].file_system;

    const bool shares = options.shared_memory && shares_memory(agreement.topology, transport.rank(), all);
    const std::byte mine_shares{static_cast<uint8_t>(shares ? 1 : 0)};
    TAILRACE_ASSIGN(const auto shared, transport.allgather(std::span(&mine_shares, 1)));
    agreement.node_shares_memory.assign(agreement.topology.ranks_of_node.size(), true);
    for (size_t rank = 0; rank < shared.size(); ++rank) {
        const auto its_node = static_cast<size_t>(agreement.topology.node_of_rank[rank]);
        if (shared[rank].size() != 1 || shared[rank][0] != std::byte{1}) {
            if (transport.rank() == 0 && options.shared_memory && agreement.node_shares_memory[its_node])
                log(LogLevel::info,
                    "'{}': the ranks of node {} cannot see each other's memory; calls use two phases", path,
                    its_node);
            agreement.node_shares_memory[its_node] = false;
        }
    }
    return agreement;
}

}  // namespace tailrace::internal::collective
