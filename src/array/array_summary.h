// Summaries of arrays: what nodes tell each other in place of their ranks' tables, so that one of
// them can say whether every array can be restored. (array_check.h has the rule, and the exact
// answer for one array.) Pure.
//
// For an array without declarations, a summary holds no boxes but a fingerprint of what they cover:
// the sum, over the elements of all pieces, of prod_d r_d^(x_d) modulo the prime 2^61-1. Here x is
// the element's index and the r_d are random. For a box this is a product of geometric sums, which
// takes O(log) steps per dimension. The sums of ranks, and those of nodes, are simply added. The
// pieces cover each element exactly once if their polynomial is that of the whole array.
//
// If it is not, the two values are still equal at a random point with a probability of at most
// degree / 2^61 (J. T. Schwartz, "Fast probabilistic algorithms for verification of polynomial
// identities", JACM 27 (1980); R. Zippel, EUROSAM 1979). The degree is below the sum of the array's
// extents. We take two points. So a gap in an array of 2^40 elements goes unnoticed with a
// probability of 2^-42, and in one of 2^20 elements in each of three dimensions with less than
// 2^-78. A good array is never taken for a bad one.
//
// For an array that is declared to have gaps, or to overlap, a summary holds the distinct boxes.
// With both declarations, and for a list, there is nothing to check except that all ranks declare the
// same. (A list of more than 2^64 bytes is found by array_check only: nobody has saved one.)
//
// Names and types travel as hashes of 122 bits, which are again polynomials at two random points.
// All points follow from the run's random number. So every rank has the same points, and nobody can
// choose arrays that deceive them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "array/array_check.h"
#include "base/status.h"
#include "format/manifest.h"

namespace tailrace::internal {

// Two numbers below 2^61-1: values of a polynomial at two points.
using Residues = std::array<uint64_t, 2>;

struct NamedPiece {
    std::string_view name;
    const ArrayPiece* piece = nullptr;
};
std::vector<NamedPiece> array_pieces(const PartManifest& manifest);

class ArrayPoints {
  public:
    explicit ArrayPoints(uint64_t run_uid);

    // A digest of all that a rank saves of arrays; {0, 0} if that is nothing. Equal tables have
    // equal digests.
    Residues digest(std::span<const NamedPiece> pieces) const;
    // A digest of several digests, in this order; {0, 0} if all of them are {0, 0}.
    Residues combine(std::span<const Residues> digests) const;

    Residues hash_name(std::string_view name) const;
    Residues hash_traits(const ArrayPiece& piece) const;  // type, global shape, declarations
    Residues fingerprint(const Box& box) const;

  private:
    // The powers of a number, for four bits of the exponent at a time.
    struct Powers {
        std::array<std::array<uint64_t, 16>, 16> of = {};  // of[i][j] = number^(j * 16^i)
        uint64_t less_one_inverse = 0;                     // 1 / (number - 1)
    };
    uint64_t power(const Powers& powers, uint64_t exponent) const;
    uint64_t sum_of_powers(const Powers& powers, uint64_t from, uint64_t count) const;

    Residues hash_point_ = {};
    std::array<std::vector<Powers>, 2> points_;  // each point has one number per dimension
};

struct ArraySummary {
    struct Entry {
        Residues name = {}, traits = {};
        bool differing = false;             // ranks have different traits
        Residues covered = {}, whole = {};  // fingerprints, for an array without declarations
        // For an array with one declaration: the distinct boxes that are not empty, and whether any
        // of them appears twice.
        std::vector<uint64_t> shape;
        std::vector<Box> boxes;  // ascending by (offset, shape)
        bool may_have_gaps = false, may_overlap = false;
        bool twice = false;
        bool operator==(const Entry&) const = default;
    };
    std::vector<Entry> entries;  // ascending by name

    // Adds one rank's pieces.
    void add(const ArrayPoints& points, std::span<const NamedPiece> pieces);
    void merge(ArraySummary other);
    // The names of the arrays in which check_array would find a fault.
    std::vector<Residues> faulty() const;
    bool operator==(const ArraySummary&) const = default;
};

std::vector<std::byte> encode(const ArraySummary& summary);
Result<ArraySummary> decode_array_summary(std::span<const std::byte> bytes);

}  // namespace tailrace::internal
