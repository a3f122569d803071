// What all transports share: agreement on a status, and the transport of a single rank.
#include "transport/transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "transport/in_process.h"

namespace tailrace::internal {

namespace {

// Longer sentences are cut, because in an agreement every rank receives those of all ranks.
constexpr size_t longest_sentence_bytes = 2048;

// An answer that cannot be decoded counts as a failure of that rank, never as a success.
Status decode(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    Status status = get_status(reader);
    return reader.at_end() ? status : Status(Code::transport, "sent something other than its status");
}

}  // namespace

Status agree(Transport& transport, const Status& mine) {
    if (transport.size() == 1) return mine;
    ByteWriter own;
    put(own, mine, longest_sentence_bytes);
    auto answers = transport.allgather(own.bytes());
    if (!answers.ok()) return mine.ok() ? answers.status().with_context("agreeing on a status") : mine;

    Status worst;
    size_t worst_rank = 0;
    size_t others = 0;
    for (size_t rank = 0; rank < answers->size(); ++rank) {
        Status status = decode((*answers)[rank]);
        if (status.ok()) continue;
        if (worst.ok()) {
            worst = std::move(status);
            worst_rank = rank;
        } else {
            ++others;
        }
    }
    if (worst.ok()) return worst;
    std::string sentence = fmt::format("rank {}: {}", worst_rank, worst.message());
    if (others > 0)
        sentence += fmt::format(" ({} other {} failed too)", others, others == 1 ? "rank" : "ranks");
    return Status(worst.code(), std::move(sentence));
}

std::unique_ptr<Transport> make_single_transport() {
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) != 0) host = {"localhost"};
    return std::move(make_in_process_transports({host.data()}).front());
}

}  // namespace tailrace::internal
