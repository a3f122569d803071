#include "array/array_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/bytes.h"
#include "base/invariant.h"
#include "base/mixed.h"

namespace tailrace::internal {

namespace {

__extension__ using Wide = unsigned __int128;
constexpr uint64_t prime = (uint64_t{1} << 61) - 1;
constexpr size_t word_bytes = 7;  // bytes of text that fit in a residue

uint64_t reduce(uint64_t value) {
    value = (value & prime) + (value >> 61);
    return value >= prime ? value - prime : value;
}
uint64_t plus(uint64_t a, uint64_t b) {
    const uint64_t sum = a + b;
    return sum >= prime ? sum - prime : sum;
}
uint64_t minus(uint64_t a, uint64_t b) {
    return a >= b ? a - b : a + prime - b;
}
uint64_t times(uint64_t a, uint64_t b) {
    const Wide product = Wide{a} * b;
    return reduce((static_cast<uint64_t>(product) & prime) + static_cast<uint64_t>(product >> 61));
}
uint64_t raised(uint64_t base, uint64_t exponent) {
    uint64_t value = 1;
    for (; exponent > 0; exponent >>= 1, base = times(base, base))
        if ((exponent & 1) != 0) value = times(value, base);
    return value;
}

// Pseudo-random numbers from a seed (S. Vigna, splitmix64).
class Stream {
  public:
    explicit Stream(uint64_t seed) : state_(seed) {}
    uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15u); }
    uint64_t point() {  // never 0 or 1
        while (true)
            if (const uint64_t candidate = next() & prime; candidate > 1 && candidate < prime)
                return candidate;
    }

  private:
    uint64_t state_;
};

// A polynomial hash of words below the prime, at both points at once.
class Hash {
  public:
    explicit Hash(const Residues& point) : point_(point) {}
    void put(const Residues& words) {
        for (size_t i = 0; i < 2; ++i) value_[i] = plus(times(value_[i], point_[i]), words[i]);
    }
    void put_word(uint64_t word) { put({word, word}); }
    void put_number(uint64_t number) {
        put_word(number >> 32);
        put_word(number & 0xffffffffu);
    }
    void put_text(std::string_view text) {
        put_word(text.size() + 1);
        for (size_t at = 0; at < text.size(); at += word_bytes) {
            uint64_t word = 0;
            for (const char c : text.substr(at, word_bytes))
                word = (word << 8) | static_cast<unsigned char>(c);
            put_word(word);
        }
    }
    void put_traits(const ArrayPiece& piece) {
        put_word(1 + static_cast<uint64_t>(piece.type) * 8 + array_flags(piece));
        put_word(piece.global_shape.size());
        for (const uint64_t extent : common_shape(piece)) put_number(extent);
    }
    Residues value() const { return value_; }

  private:
    const Residues point_;
    Residues value_ = {};
};

bool before(const Box& a, const Box& b) {
    return std::tie(a.offset, a.shape) < std::tie(b.offset, b.shape);
}

bool is_empty(const Box& box) {
    return std::find(box.shape.begin(), box.shape.end(), 0) != box.shape.end();
}

void add_into(ArraySummary::Entry& entry, ArraySummary::Entry&& other) {
    if (other.traits != entry.traits || other.differing) {
        entry.differing = true;
        return;
    }
    for (size_t i = 0; i < 2; ++i) entry.covered[i] = plus(entry.covered[i], other.covered[i]);
    const size_t all = entry.boxes.size() + other.boxes.size();
    std::vector<Box> boxes;
    std::set_union(std::make_move_iterator(entry.boxes.begin()), std::make_move_iterator(entry.boxes.end()),
                   std::make_move_iterator(other.boxes.begin()), std::make_move_iterator(other.boxes.end()),
                   std::back_inserter(boxes), before);
    entry.boxes = std::move(boxes);
    entry.twice |= other.twice || entry.boxes.size() < all;
}

}  // namespace

std::vector<NamedPiece> array_pieces(const PartManifest& manifest) {
    std::vector<NamedPiece> pieces;
    for (const Region& region : manifest.regions)
        if (region.array) pieces.push_back({region.name, &*region.array});
    return pieces;
}

// ---- points -------------------------------------------------------------------------------------

ArrayPoints::ArrayPoints(uint64_t run_uid) {
    Stream stream(run_uid);
    for (size_t i = 0; i < 2; ++i) {
        hash_point_[i] = stream.point();
        for (size_t d = 0; d < max_dimensions; ++d) {
            Powers& powers = points_[i].emplace_back();
            uint64_t base = stream.point();
            powers.less_one_inverse = raised(base - 1, prime - 2);
            for (auto& row : powers.of) {
                row[0] = 1;
                for (size_t j = 1; j < row.size(); ++j) row[j] = times(row[j - 1], base);
                base = times(row.back(), base);
            }
        }
    }
}

uint64_t ArrayPoints::power(const Powers& powers, uint64_t exponent) const {
    uint64_t value = 1;
    for (size_t i = 0; exponent > 0; ++i, exponent >>= 4)
        if ((exponent & 15) != 0) value = times(value, powers.of[i][exponent & 15]);
    return value;
}

uint64_t ArrayPoints::sum_of_powers(const Powers& powers, uint64_t from, uint64_t count) const {
    const uint64_t sum = times(minus(power(powers, count), 1), powers.less_one_inverse);
    return times(power(powers, from), sum);
}

Residues ArrayPoints::fingerprint(const Box& box) const {
    INVARIANT(box.shape.size() <= max_dimensions);
    Residues values = {1, 1};
    for (size_t i = 0; i < 2; ++i)
        for (size_t d = 0; d < box.shape.size(); ++d)
            values[i] = times(values[i], sum_of_powers(points_[i][d], box.offset[d], box.shape[d]));
    return values;
}

Residues ArrayPoints::hash_name(std::string_view name) const {
    Hash hash(hash_point_);
    hash.put_text(name);
    return hash.value();
}

Residues ArrayPoints::hash_traits(const ArrayPiece& piece) const {
    Hash hash(hash_point_);
    hash.put_traits(piece);
    return hash.value();
}

Residues ArrayPoints::digest(std::span<const NamedPiece> pieces) const {
    Hash hash(hash_point_);
    for (const auto& [name, piece] : pieces) {
        hash.put_text(name);
        hash.put_traits(*piece);
        for (const uint64_t offset : piece->offset) hash.put_number(offset);
        for (const uint64_t extent : piece->local_shape) hash.put_number(extent);
    }
    return hash.value();
}

Residues ArrayPoints::combine(std::span<const Residues> digests) const {
    Hash hash(hash_point_);
    for (const Residues& one : digests) hash.put(one);
    return hash.value();
}

// ---- summaries ----------------------------------------------------------------------------------

void ArraySummary::add(const ArrayPoints& points, std::span<const NamedPiece> pieces) {
    ArraySummary of_rank;
    of_rank.entries.reserve(pieces.size());
    for (const auto& [name, piece] : pieces) {
        Entry& entry = of_rank.entries.emplace_back();
        entry.name = points.hash_name(name);
        entry.traits = points.hash_traits(*piece);
        // Of a list nothing is left to check but the traits, as of an array with both declarations.
        entry.may_have_gaps = piece->may_have_gaps || piece->is_list;
        entry.may_overlap = piece->may_overlap || piece->is_list;
        const Box box = box_of(*piece);
        if (!entry.may_have_gaps && !entry.may_overlap) {
            entry.covered = points.fingerprint(box);
            entry.whole = points.fingerprint(
                Box{std::vector<uint64_t>(piece->global_shape.size(), 0), piece->global_shape});
        } else if (entry.may_have_gaps != entry.may_overlap) {
            entry.shape = piece->global_shape;
            if (!is_empty(box)) entry.boxes.push_back(box);
        }
    }
    std::sort(of_rank.entries.begin(), of_rank.entries.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    merge(std::move(of_rank));
}

void ArraySummary::merge(ArraySummary other) {
    std::vector<Entry> merged;
    merged.reserve(std::max(entries.size(), other.entries.size()));
    auto mine = entries.begin();
    auto theirs = other.entries.begin();
    while (mine != entries.end() || theirs != other.entries.end()) {
        if (theirs == other.entries.end() || (mine != entries.end() && mine->name < theirs->name)) {
            merged.push_back(std::move(*mine++));
        } else if (mine == entries.end() || theirs->name < mine->name) {
            merged.push_back(std::move(*theirs++));
        } else {
            add_into(*mine, std::move(*theirs++));
            merged.push_back(std::move(*mine++));
        }
    }
    entries = std::move(merged);
}

std::vector<Residues> ArraySummary::faulty() const {
    std::vector<Residues> names;
    for (const Entry& entry : entries) {
        bool wrong = entry.differing;
        if (wrong || (entry.may_have_gaps && entry.may_overlap)) {
        } else if (entry.may_overlap) {
            wrong = first_gap(entry.shape, entry.boxes).has_value();
        } else if (entry.may_have_gaps) {
            wrong = entry.twice || first_overlap(entry.boxes).has_value();
        } else {
            wrong = entry.covered != entry.whole;
        }
        if (wrong) names.push_back(entry.name);
    }
    return names;
}

// ---- bytes --------------------------------------------------------------------------------------

namespace {

constexpr uint8_t flag_differing = 1, flag_gaps = 2, flag_overlaps = 4, flag_twice = 8, all_flags = 15;
constexpr uint64_t min_entry_bytes = 2 * 16 + 1;

void put(ByteWriter& out, const Residues& residues) {
    for (const uint64_t value : residues) out.put(value);
}
Residues get_residues(ByteReader& in) {
    Residues residues;
    for (uint64_t& value : residues) {
        value = in.get<uint64_t>();
        if (value >= prime) in.set_failed();
    }
    return residues;
}

void put_entry(ByteWriter& out, const ArraySummary::Entry& entry) {
    put(out, entry.name);
    put(out, entry.traits);
    out.put(static_cast<uint8_t>((entry.differing ? flag_differing : 0) |
                                 (entry.may_have_gaps ? flag_gaps : 0) |
                                 (entry.may_overlap ? flag_overlaps : 0) | (entry.twice ? flag_twice : 0)));
    if (!entry.may_have_gaps && !entry.may_overlap) {
        put(out, entry.covered);
        put(out, entry.whole);
    } else if (entry.may_have_gaps != entry.may_overlap) {
        out.put(static_cast<uint8_t>(entry.shape.size()));
        for (const uint64_t extent : entry.shape) out.put(extent);
        out.put(static_cast<uint64_t>(entry.boxes.size()));
        for (const Box& box : entry.boxes) {
            for (const uint64_t offset : box.offset) out.put(offset);
            for (const uint64_t extent : box.shape) out.put(extent);
        }
    }
}

std::vector<uint64_t> get_numbers(ByteReader& in, size_t count) {
    std::vector<uint64_t> numbers(count);
    for (uint64_t& number : numbers) number = in.get<uint64_t>();
    return numbers;
}

// Accepts only what add() and merge() make: boxes are sorted, not empty, and lie in the array.
ArraySummary::Entry get_entry(ByteReader& in) {
    ArraySummary::Entry entry;
    entry.name = get_residues(in);
    entry.traits = get_residues(in);
    const auto flags = in.get<uint8_t>();
    if (flags > all_flags) in.set_failed();
    entry.differing = (flags & flag_differing) != 0;
    entry.may_have_gaps = (flags & flag_gaps) != 0;
    entry.may_overlap = (flags & flag_overlaps) != 0;
    entry.twice = (flags & flag_twice) != 0;
    if (!entry.may_have_gaps && !entry.may_overlap) {
        entry.covered = get_residues(in);
        entry.whole = get_residues(in);
    } else if (entry.may_have_gaps != entry.may_overlap) {
        const size_t dimensions = in.get<uint8_t>();
        if (dimensions == 0 || dimensions > max_dimensions) in.set_failed();
        if (!in.ok()) return entry;
        entry.shape = get_numbers(in, dimensions);
        const uint64_t boxes = in.get_count(2 * 8 * dimensions);
        for (uint64_t b = 0; b < boxes && in.ok(); ++b) {
            Box box{get_numbers(in, dimensions), get_numbers(in, dimensions)};
            for (size_t d = 0; d < dimensions; ++d)
                if (box.offset[d] > entry.shape[d] || box.shape[d] > entry.shape[d] - box.offset[d] ||
                    box.shape[d] == 0)
                    in.set_failed();
            if (b > 0 && !before(entry.boxes.back(), box)) in.set_failed();
            entry.boxes.push_back(std::move(box));
        }
    }
    return entry;
}

}  // namespace

std::vector<std::byte> encode(const ArraySummary& summary) {
    ByteWriter out;
    out.put(static_cast<uint64_t>(summary.entries.size()));
    for (const auto& entry : summary.entries) put_entry(out, entry);
    return out.take();
}

Result<ArraySummary> decode_array_summary(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    ArraySummary summary;
    const uint64_t count = in.get_count(min_entry_bytes);
    summary.entries.reserve(count);
    for (uint64_t i = 0; i < count && in.ok(); ++i) {
        summary.entries.push_back(get_entry(in));
        if (i > 0 && !(summary.entries[i - 1].name < summary.entries[i].name)) in.set_failed();
    }
    if (!in.at_end())
        return Status(Code::transport,
                      fmt::format("a summary of arrays could not be decoded ({} bytes)", bytes.size()));
    return summary;
}

}  // namespace tailrace::internal
