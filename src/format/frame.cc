#include "format/frame.h"

#include <fmt/format.h>

#include "base/crc32c.h"
#include "base/invariant.h"

namespace tailrace::internal::format {

namespace {

constexpr size_t required_at = 12;
constexpr size_t crc_at = 20;
constexpr size_t size_at = 24;

template <class T>
void store(std::vector<std::byte>& bytes, size_t at, T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes[at + i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
}

}  // namespace

void begin_record(ByteWriter& writer, std::string_view magic, uint32_t required_features) {
    INVARIANT(magic.size() == 8);
    writer.put_bytes(std::as_bytes(std::span(magic.data(), magic.size())));
    writer.put(version_major);
    writer.put(version_minor);
    writer.put(required_features);
    writer.put_zeros(frame_bytes - writer.size());
}

std::vector<std::byte> seal(ByteWriter&& writer, uint64_t record_bytes) {
    INVARIANT(writer.size() >= frame_bytes && writer.size() <= record_bytes);
    writer.put_zeros(record_bytes - writer.size());
    auto record = writer.take();
    store(record, size_at, record_bytes);
    store(record, crc_at, record_crc(record));
    return record;
}

uint32_t record_crc(std::span<const std::byte> record) {
    static constexpr std::byte zeros[4] = {};
    uint32_t crc = crc32c(record.first(crc_at));
    crc = crc32c(zeros, crc);
    return crc32c(record.subspan(size_at), crc);
}

Status check_frame(std::span<const std::byte> bytes, std::string_view magic, uint64_t record_bytes,
                   std::string_view what) {
    ByteReader reader(bytes);
    const auto found_magic = reader.get_bytes(magic.size());
    if (std::memcmp(found_magic.data(), magic.data(), magic.size()) != 0)
        return Status(
            Code::corrupt,
            fmt::format("the {} does not start with \"{}\": it is damaged, or tailrace has not written it",
                        what, magic));
    reader.get_bytes(size_at - reader.position());
    const auto size = reader.get<uint64_t>();
    if (size != record_bytes)
        return Status(Code::corrupt, fmt::format("the {} says that it has {} bytes, but {} are expected",
                                                 what, size, record_bytes));
    return Status();
}

Result<ByteReader> open_record(std::span<const std::byte> bytes, std::string_view magic,
                               uint64_t record_bytes, std::string_view what, uint32_t known_features) {
    if (bytes.size() < frame_bytes || bytes.size() < record_bytes)
        return Status(Code::corrupt, fmt::format("the {} is cut off: it has {} bytes, but {} are needed",
                                                 what, bytes.size(), std::max(record_bytes, frame_bytes)));
    TAILRACE_TRY(check_frame(bytes, magic, record_bytes, what));
    ByteReader reader(bytes.first(record_bytes));
    reader.get_bytes(magic.size());
    auto major = reader.get<uint16_t>();
    auto minor = reader.get<uint16_t>();
    auto required = reader.get<uint32_t>();
    reader.get<uint32_t>();  // optional features: this version uses none
    auto crc = reader.get<uint32_t>();
    reader.get<uint64_t>();  // the size
    uint32_t computed = record_crc(bytes.first(record_bytes));
    if (computed != crc)
        return Status(Code::corrupt, fmt::format("the {}'s checksum is {:08x}, but its bytes give {:08x}",
                                                 what, crc, computed));
    if (major != version_major)
        return Status(Code::unsupported,
                      fmt::format("the {} was written in format version {}.{}, but this program reads {}.x",
                                  what, major, minor, version_major));
    if ((required & ~known_features) != 0)
        return Status(Code::unsupported,
                      fmt::format("the {} needs features {:#x} that this program does not know", what,
                                  required & ~known_features));
    return reader;
}

uint32_t required_features(std::span<const std::byte> record) {
    return ByteReader(record.subspan(required_at)).get<uint32_t>();
}

void put_job(ByteWriter& writer, std::string_view job) {
    INVARIANT(job.size() <= job_field_bytes);
    writer.put_bytes(std::as_bytes(std::span(job.data(), job.size())));
    writer.put_zeros(job_field_bytes - job.size());
}

std::string get_job(ByteReader& reader, uint32_t job_bytes) {
    auto field = reader.get_bytes(job_field_bytes);
    if (job_bytes > field.size()) return {};
    return std::string(reinterpret_cast<const char*>(field.data()), job_bytes);
}

}  // namespace tailrace::internal::format
