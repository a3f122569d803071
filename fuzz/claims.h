// Claims: what must hold for every sequence of bytes, whoever made it. The fuzz targets ask them of bytes
// that libFuzzer invents, and tests/format/corpus_test.cc of the kept corpus, under every compiler.
//
// Each function decodes the bytes as they are, and a second time with sizes and checksums made right, because
// nothing random gets past a checksum. It returns what was found broken, or nothing. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tailrace::internal {

using BrokenClaim = std::string;  // empty: all hold

BrokenClaim check_part_header(std::span<const std::byte> input);
BrokenClaim check_manifest(std::span<const std::byte> input);
// The input is a whole shared file: header, slots and indexes of every leader are read.
BrokenClaim check_shared_file(std::span<const std::byte> input);
BrokenClaim check_protect_head(std::span<const std::byte> input);
BrokenClaim check_file_name(std::span<const std::byte> input);
BrokenClaim check_plan_record(std::span<const std::byte> input);
BrokenClaim check_file_table(std::span<const std::byte> input);

struct ClaimTarget {
    std::string_view name;  // of the fuzz target and of its folder in fuzz/corpus
    BrokenClaim (*check)(std::span<const std::byte>);
};
inline constexpr ClaimTarget claim_targets[] = {
    {"part_header", check_part_header},   {"manifest", check_manifest},   {"shared_file", check_shared_file},
    {"protect_head", check_protect_head}, {"file_name", check_file_name}, {"plan_record", check_plan_record},
    {"file_table", check_file_table},
};

}  // namespace tailrace::internal
