#include "requests/statistics.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"

namespace tailrace::internal::collective {

namespace {

// Visits every field once: how it is added up, encoded and decoded.
template <class Statistics, class Sum, class Most, class Seconds>
void for_each_field(Statistics& s, Sum sum, Most most, Seconds seconds) {
    for (auto* field :
         {&s.bytes, &s.requests, &s.requests_after_local, &s.requests_after_global, &s.cuts_after_local,
          &s.cuts_after_global, &s.file_operations, &s.overlapping_bytes, &s.messages})
        sum(*field);
    for (auto* field : {&s.calls, &s.direct_calls, &s.two_phase_calls, &s.two_layer_calls, &s.collectives,
                        &s.steps, &s.local_aggregators, &s.global_aggregators, &s.rounds, &s.receives,
                        &s.memory_bytes, &s.messages_of_one})
        most(*field);
    for (auto* field : {&s.total, &s.gather, &s.copy, &s.scatter, &s.file, &s.exchange}) seconds(*field);
}

}  // namespace

std::vector<std::byte> encode(const Statistics& statistics) {
    ByteWriter writer;
    const auto number = [&](uint64_t value) { writer.put(value); };
    for_each_field(statistics, number, number,
                   [&](double value) { writer.put(std::bit_cast<uint64_t>(value)); });
    return writer.take();
}

Result<Statistics> decode_statistics(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    Statistics statistics;
    const auto number = [&](uint64_t& value) { value = reader.get<uint64_t>(); };
    for_each_field(statistics, number, number,
                   [&](double& value) { value = std::bit_cast<double>(reader.get<uint64_t>()); });
    if (!reader.at_end()) return Status(Code::transport, "a rank sent something other than its statistics");
    return statistics;
}

void Statistics::add(const Statistics& other) {
    std::vector<uint64_t> numbers;
    std::vector<double> times;
    const auto keep = [&](uint64_t value) { numbers.push_back(value); };
    for_each_field(other, keep, keep, [&](double value) { times.push_back(value); });
    size_t number = 0, time = 0;
    for_each_field(
        *this, [&](uint64_t& value) { value += numbers[number++]; },
        [&](uint64_t& value) { value = std::max(value, numbers[number++]); },
        [&](double& value) { value = std::max(value, times[time++]); });
}

}  // namespace tailrace::internal::collective
