#include "read/array_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "read/epoch_reader.h"

namespace tailrace::internal {

namespace {

constexpr size_t min_slice_entries = 64;

void put_numbers(ByteWriter& out, const std::vector<uint64_t>& numbers) {
    for (const uint64_t number : numbers) out.put(number);
}
std::vector<uint64_t> get_numbers(ByteReader& in, size_t count) {
    std::vector<uint64_t> numbers(count);
    for (uint64_t& number : numbers) number = in.get<uint64_t>();
    return numbers;
}

void put_piece(ByteWriter& out, const SavedPiece& saved) {
    const ArrayPiece& piece = saved.piece;
    out.put(saved.rank);
    out.put_string(saved.name);
    out.put(static_cast<uint8_t>(piece.type));
    out.put(array_flags(piece));
    out.put(static_cast<uint8_t>(piece.global_shape.size()));
    put_numbers(out, piece.global_shape);
    put_numbers(out, piece.offset);
    put_numbers(out, piece.local_shape);
}
SavedPiece get_piece(ByteReader& in) {
    SavedPiece saved;
    saved.rank = in.get<uint32_t>();
    saved.name = in.get_string(max_region_name_bytes);
    saved.piece.type = static_cast<ElementType>(in.get<uint8_t>());
    const auto flags = in.get<uint8_t>();
    set_array_flags(saved.piece, flags);
    if (array_flags(saved.piece) != flags) in.set_failed();
    const size_t dimensions = in.get<uint8_t>();
    if (dimensions > max_dimensions) in.set_failed();
    if (!in.ok()) return saved;
    saved.piece.global_shape = get_numbers(in, dimensions);
    saved.piece.offset = get_numbers(in, dimensions);
    saved.piece.local_shape = get_numbers(in, dimensions);
    if (!check_array_piece(saved.piece).ok()) in.set_failed();
    return saved;
}
constexpr uint64_t min_piece_bytes = 4 + 4 + 3 + 3 * 8;

}  // namespace

// ---- facts --------------------------------------------------------------------------------------

void ArrayFacts::add(const ArrayPoints& points, const ArrayQuestion& question, uint32_t rank,
                     std::span<const NamedPiece> table) {
    if (!question.of_one) return summary.add(points, table);
    for (const auto& [name, piece] : table)
        if (points.hash_name(name) == question.name) pieces.push_back({rank, std::string(name), *piece});
}

void ArrayFacts::merge(ArrayFacts other) {
    if (failure.ok()) failure = std::move(other.failure);
    summary.merge(std::move(other.summary));
    std::move(other.pieces.begin(), other.pieces.end(), std::back_inserter(pieces));
}

ArrayFacts facts_of_parts(Storage& local, const ArrayPoints& points, const ArrayQuestion& question,
                          std::span<const PartPlace> parts) {
    ArrayFacts facts;
    for (const auto& place : parts) {
        const Status read = [&]() -> Status {
            TAILRACE_ASSIGN(const auto part, captured_part(local, place.path, place.offset));
            const uint32_t rank = part.header.stream.rank;
            TAILRACE_ASSIGN(
                const auto reader,
                EpochReader::open(local, local, {place.key, part.header.rank_count, {part}, std::nullopt}));
            TAILRACE_ASSIGN(const auto* manifest, reader->manifest(rank));
            facts.add(points, question, rank, array_pieces(*manifest));
            return {};
        }();
        if (facts.failure.ok()) facts.failure = read;
    }
    return facts;
}

Status verify_parts(Storage& local, std::span<const PartPlace> parts, uint64_t memory_bytes) {
    for (const auto& place : parts) {
        const auto part = captured_part(local, place.path, place.offset);
        if (part.status().code() == Code::not_found)
            return Status(Code::corrupt, "a captured part is missing: " + part.status().message());
        TAILRACE_TRY(part.status());
        const uint32_t rank_count = part->header.rank_count;
        TAILRACE_ASSIGN(const auto reader,
                        EpochReader::open(local, local, {place.key, rank_count, {*part}, std::nullopt}));
        TAILRACE_TRY(reader->verify(
            part->header.stream.rank, [](uint64_t) {}, memory_bytes));
    }
    return {};
}

std::vector<std::byte> encode(const ArrayFacts& facts) {
    ByteWriter out;
    put(out, facts.failure);
    out.put(static_cast<uint64_t>(facts.pieces.size()));
    for (const auto& piece : facts.pieces) put_piece(out, piece);
    out.put_bytes(encode(facts.summary));
    return out.take();
}

Result<ArrayFacts> decode_array_facts(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    ArrayFacts facts;
    facts.failure = get_status(in);
    const uint64_t count = in.get_count(min_piece_bytes);
    for (uint64_t i = 0; i < count && in.ok(); ++i) facts.pieces.push_back(get_piece(in));
    if (!in.ok())
        return Status(Code::transport,
                      fmt::format("an answer about arrays could not be decoded ({} bytes)", bytes.size()));
    TAILRACE_ASSIGN(facts.summary, decode_array_summary(bytes.subspan(in.position())));
    return facts;
}

// ---- the verdict --------------------------------------------------------------------------------

ArrayAnswer judge_arrays(const ArrayQuestion& asked, ArrayFacts facts, uint32_t rank_count) {
    if (!facts.failure.ok())
        return {facts.failure.with_context("it is unknown whether its arrays can be restored")};
    if (!asked.of_one) {
        const auto faulty = facts.summary.faulty();
        if (faulty.empty()) return {Status()};
        return {std::nullopt, {true, faulty.front(), faulty.size() - 1}};
    }
    std::sort(facts.pieces.begin(), facts.pieces.end(),
              [](const SavedPiece& a, const SavedPiece& b) { return a.rank < b.rank; });
    std::vector<RankPiece> pieces;
    for (const auto& saved : facts.pieces) pieces.push_back({saved.rank, &saved.piece});
    auto fault = pieces.empty() ? std::nullopt : check_array(facts.pieces.front().name, pieces, rank_count);
    if (!fault) return {Status(Code::failed_state, "its arrays changed while they were checked")};
    if (asked.others > 0)
        fault->sentence += fmt::format(" ({} more of its arrays cannot be saved like this)", asked.others);
    return {fault->refusal()};
}

// ---- collective ---------------------------------------------------------------------------------

namespace {

std::vector<std::vector<std::byte>> slices_of(ArrayFacts facts, size_t entries_each) {
    const auto entries = std::exchange(facts.summary.entries, {});
    std::vector<std::vector<std::byte>> slices;
    for (size_t at = 0; at < entries.size() || slices.empty(); at += entries_each) {
        const size_t end = std::min(entries.size(), at + entries_each);
        facts.summary.entries.assign(entries.begin() + static_cast<std::ptrdiff_t>(at),
                                     entries.begin() + static_cast<std::ptrdiff_t>(end));
        slices.push_back(encode(facts));
        facts = {};
    }
    return slices;
}

// Returns all ranks' facts on rank 0, and nothing on the others. Collective.
Result<ArrayFacts> gather_facts(Transport& transport, ArrayFacts mine, size_t max_entries) {
    const auto ranks = static_cast<size_t>(transport.size());
    const auto slices = slices_of(std::move(mine), std::max(min_slice_entries, max_entries / ranks));
    ByteWriter count;
    count.put(static_cast<uint64_t>(slices.size()));
    TAILRACE_ASSIGN(const auto counts, transport.allgather(count.bytes()));
    uint64_t most = 0;
    for (size_t rank = 0; rank < counts.size(); ++rank) {
        ByteReader in(counts[rank]);
        most = std::max(most, in.get<uint64_t>());
        if (!in.at_end())  // as from a rank that cannot go on (background/collective_background.h)
            return Status(Code::transport, fmt::format("rank {} has sent nothing about its arrays", rank));
    }
    ArrayFacts whole;
    for (uint64_t at = 0; at < most; ++at) {
        const auto slice =
            at < slices.size() ? std::span<const std::byte>(slices[at]) : std::span<const std::byte>();
        TAILRACE_ASSIGN(const auto shares, transport.allgather(slice));
        if (transport.rank() != 0) continue;
        for (const auto& share : shares) {
            if (share.empty()) continue;
            auto facts = decode_array_facts(share);
            if (facts.ok())
                whole.merge(std::move(*facts));
            else if (whole.failure.ok())
                whole.failure = facts.status();
        }
    }
    return whole;
}

}  // namespace

Result<ArrayAnswer> judge_together(Transport& transport, uint32_t rank_count,
                                   const std::function<ArrayFacts(const ArrayQuestion&)>& facts,
                                   size_t max_entries) {
    ArrayQuestion question;
    while (true) {
        TAILRACE_ASSIGN(auto all, gather_facts(transport, facts(question), max_entries));
        ArrayAnswer answer;
        if (transport.rank() == 0) answer = judge_arrays(question, std::move(all), rank_count);
        ByteWriter out;
        out.put(static_cast<uint8_t>(answer.verdict.has_value()));
        put(out, answer.verdict.value_or(Status()));
        for (const uint64_t word : answer.next.name) out.put(word);
        TAILRACE_ASSIGN(const auto from_root, transport.broadcast(0, out.bytes()));
        ByteReader in(from_root);
        const bool is_last = in.get<uint8_t>() != 0;
        Status verdict = get_status(in);
        question.of_one = true;
        for (uint64_t& word : question.name) word = in.get<uint64_t>();
        question.others = answer.next.others;
        if (!in.at_end())
            return Status(Code::transport, "rank 0's verdict on the arrays could not be decoded");
        if (is_last) return ArrayAnswer{std::move(verdict)};
    }
}

}  // namespace tailrace::internal
