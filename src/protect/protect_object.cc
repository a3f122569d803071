#include "protect/protect_object.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crc32c.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/units.h"
#include "format/frame.h"
#include "format/manifest.h"

namespace tailrace::internal {

namespace {

// A head is read in pieces of this size until its checksum was found right.
constexpr uint64_t head_piece_bytes = MiB;
constexpr uint64_t verify_bytes = MiB;
constexpr size_t crc_at = 20, size_at = 24;  // in the frame

std::vector<std::byte> read_up_to(Result<size_t>& got, File& file, uint64_t offset, uint64_t bytes) {
    std::vector<std::byte> memory(bytes);
    got = file.read_at(memory, offset);
    memory.resize(got.ok() ? *got : 0);
    return memory;
}

// Whether the first `bytes` of the file are a record of that size with the checksum that it names. A
// length deserves no trust before that.
Status confirm_record(File& file, uint64_t bytes) {
    uint32_t computed = 0, expected = 0;
    for (uint64_t offset = 0; offset < bytes; offset += head_piece_bytes) {
        Result<size_t> got = size_t{0};
        auto piece = read_up_to(got, file, offset, std::min(head_piece_bytes, bytes - offset));
        TAILRACE_TRY(got.status());
        if (offset == 0) {
            ByteReader reader(std::span<const std::byte>(piece).subspan(crc_at, sizeof(uint32_t)));
            expected = reader.get<uint32_t>();
            std::fill_n(piece.begin() + crc_at, sizeof(uint32_t), std::byte{0});
        }
        computed = crc32c(piece, computed);
    }
    if (computed == expected) return {};
    return Status(Code::corrupt, fmt::format("its head's checksum is {:08x}, but its bytes give {:08x}",
                                             expected, computed));
}

Result<ProtectHead> head_of(File& file) {
    TAILRACE_ASSIGN(const uint64_t bytes, file.size());
    Result<size_t> got = size_t{0};
    const auto frame = read_up_to(got, file, 0, format::frame_bytes);
    TAILRACE_TRY(got.status());
    if (frame.size() < format::frame_bytes)
        return Status(Code::corrupt, fmt::format("it has only {} bytes", frame.size()));
    ByteReader reader(std::span<const std::byte>(frame).subspan(size_at));
    const auto head_bytes = reader.get<uint64_t>();
    TAILRACE_TRY(format::check_frame(frame, format::protect_magic, head_bytes, "protect object's head"));
    if (head_bytes < format::frame_bytes || head_bytes > bytes)
        return Status(Code::corrupt, fmt::format("its head says that it has {} bytes, but the file has {}",
                                                 head_bytes, bytes));
    if (head_bytes > head_piece_bytes) TAILRACE_TRY(confirm_record(file, head_bytes));
    const auto record = read_up_to(got, file, 0, head_bytes);
    TAILRACE_TRY(got.status());
    TAILRACE_ASSIGN(auto head, decode_protect_head(record));
    if (file_bytes(head) > bytes)
        return Status(Code::corrupt, fmt::format("it is cut off: it needs {} bytes by its head, but has {}",
                                                 file_bytes(head), bytes));
    return head;
}

}  // namespace

// ---- logical parts ------------------------------------------------------------------------------

LogicalPart::LogicalPart(Storage& storage, std::vector<Piece> pieces)
    : storage_(storage), pieces_(std::move(pieces)) {
    for (const auto& piece : pieces_) ends_.push_back(bytes_ += piece.bytes);
}

Result<std::shared_ptr<File>> LogicalPart::file_of(size_t piece) {
    MutexLock lock(mutex_);
    auto& file = files_[piece];
    if (!file) {
        auto opened = storage_.open(pieces_[piece].path, {Access::read, DirectIo::off});
        if (opened.status().code() == Code::not_found)
            return Status(Code::corrupt, "a captured part is missing: " + opened.status().message());
        TAILRACE_TRY(opened.status());
        file = std::move(*opened);
    }
    return file;
}

Status LogicalPart::read(uint64_t offset, std::span<std::byte> target) {
    INVARIANT(offset + target.size() <= bytes_);
    auto piece = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
    while (!target.empty()) {
        const uint64_t begin = ends_[piece] - pieces_[piece].bytes;
        const auto wanted = target.first(std::min<uint64_t>(target.size(), ends_[piece] - offset));
        TAILRACE_ASSIGN(const auto file, file_of(piece));
        TAILRACE_ASSIGN(const size_t got, file->read_at(wanted, offset - begin));
        if (got != wanted.size())
            return Status(
                Code::corrupt,
                fmt::format("reading {} bytes at offset {} of the captured part {}: only {} are there",
                            wanted.size(), offset - begin, pieces_[piece].path, got));
        target = target.subspan(wanted.size());
        offset += wanted.size();
        if (offset == ends_[piece]) ++piece;
    }
    return {};
}

// ---- writing ------------------------------------------------------------------------------------

std::string protect_path(const std::string& directory, const std::string& job, EpochKey key, int node) {
    return join_path(directory, to_string(ProtectFileName{job, key, static_cast<uint32_t>(node), false}));
}

namespace {

constexpr std::string_view spare_suffix = ".spare";

// The paths of a job's spares.
std::vector<std::string> list_spares(Storage& storage, const std::string& directory, const std::string& job) {
    std::vector<std::string> spares;
    const auto entries = storage.list(directory);
    if (!entries.ok()) return spares;
    for (const auto& entry : *entries) {
        if (!entry.name.ends_with(spare_suffix)) continue;
        const std::string_view text = entry.name;
        const auto name = parse_protect_file_name(text.substr(0, text.size() - spare_suffix.size()));
        if (name && name->job == job) spares.push_back(join_path(directory, entry.name));
    }
    return spares;
}

}  // namespace

Status make_spare(Storage& storage, const std::string& protect_path) {
    return storage.rename(protect_path, protect_path + std::string(spare_suffix));
}

bool remove_spares(Storage& storage, const std::string& directory, const std::string& job) {
    bool any = false;
    for (const auto& path : list_spares(storage, directory, job)) any |= storage.remove(path).ok();
    return any;
}

ObjectWriter::ObjectWriter(Storage& storage, ProtectHead head, bool sync)
    : storage_(storage),
      head_(std::move(head)),
      record_bytes_(internal::record_bytes(head_)),
      piece_bytes_(internal::piece_bytes(head_)),
      blocks_(blocks_of_piece(head_)),
      sync_(sync) {}

Result<std::unique_ptr<ObjectWriter>> ObjectWriter::create(Storage& storage, const std::string& directory,
                                                           ProtectHead head, bool sync) {
    head.block_crcs.assign(piece_count(head) * blocks_of_piece(head), 0);
    std::unique_ptr<ObjectWriter> writer(new ObjectWriter(storage, std::move(head), sync));
    const auto& own = writer->head_;
    writer->directory_ = directory;
    ProtectFileName name{own.identity.job, own.identity.key, own.members[own.position].node, false};
    writer->path_ = join_path(directory, to_string(name));
    name.unfinished = true;
    writer->unfinished_path_ = join_path(directory, to_string(name));
    // Every byte of it is written, so a file of this name that a crash has left would do as well.
    const auto spares = list_spares(storage, directory, own.identity.job);
    if (!spares.empty()) (void)storage.rename(spares.front(), writer->unfinished_path_);
    TAILRACE_ASSIGN(writer->file_, storage.open(writer->unfinished_path_, {Access::write, DirectIo::off}));
    TAILRACE_ASSIGN(const uint64_t old_bytes, writer->file_->size());
    if (old_bytes > file_bytes(own)) TAILRACE_TRY(writer->file_->truncate(file_bytes(own)));
    Status reserved = reserve_if_possible(*writer->file_, 0, file_bytes(own));
    if (!reserved.ok()) {
        writer->discard();
        return reserved;
    }
    return writer;
}

Status ObjectWriter::write(uint32_t piece, uint64_t offset, std::span<const std::byte> bytes) {
    INVARIANT(piece < piece_count(head_) && offset + bytes.size() <= piece_bytes_);
    TAILRACE_TRY(file_->write_at(bytes, record_bytes_ + uint64_t{piece} * piece_bytes_ + offset));
    while (!bytes.empty()) {
        const auto block =
            bytes.first(std::min<uint64_t>(bytes.size(), check_block_bytes - offset % check_block_bytes));
        uint32_t& crc = head_.block_crcs[piece * blocks_ + offset / check_block_bytes];
        crc = crc32c(block, crc);
        bytes = bytes.subspan(block.size());
        offset += block.size();
    }
    return {};
}

Status ObjectWriter::finish() {
    TAILRACE_ASSIGN(const uint64_t written, file_->size());
    if (written < file_bytes(head_)) TAILRACE_TRY(file_->truncate(file_bytes(head_)));
    if (sync_) TAILRACE_TRY(file_->sync());
    TAILRACE_TRY(file_->write_at(encode(head_), 0));
    if (sync_) TAILRACE_TRY(file_->sync());
    TAILRACE_TRY(file_->close());
    TAILRACE_TRY(storage_.rename(unfinished_path_, path_));
    return sync_ ? storage_.sync_directory(directory_) : Status();
}

void ObjectWriter::discard() {
    if (file_) (void)file_->close();
    for (const auto& path : {unfinished_path_, path_}) {
        const auto removed = remove_if_there(storage_, path);
        if (!removed.ok()) log(LogLevel::info, "{} could not be removed: {}", path, removed.message());
    }
}

// ---- reading ------------------------------------------------------------------------------------

Result<ProtectHead> ObjectReader::read_head(Storage& storage, const std::string& path) {
    TAILRACE_ASSIGN(const auto file, storage.open(path, {Access::read, DirectIo::off}));
    auto head = head_of(*file);
    if (!head.ok()) return head.status().with_context(path);
    return head;
}

ObjectReader::ObjectReader(std::unique_ptr<File> file, ProtectHead head)
    : file_(std::move(file)),
      head_(std::move(head)),
      record_bytes_(internal::record_bytes(head_)),
      piece_bytes_(internal::piece_bytes(head_)),
      blocks_(blocks_of_piece(head_)) {}

Result<std::unique_ptr<ObjectReader>> ObjectReader::open(Storage& storage, const std::string& path,
                                                         ProtectHead head) {
    TAILRACE_ASSIGN(auto file, storage.open(path, {Access::read, DirectIo::off}));
    return std::unique_ptr<ObjectReader>(new ObjectReader(std::move(file), std::move(head)));
}

Status ObjectReader::read(uint32_t piece, uint64_t offset, std::span<std::byte> target) {
    INVARIANT(piece < piece_count(head_) && offset % check_block_bytes == 0);
    INVARIANT(offset + target.size() == piece_bytes_ || target.size() % check_block_bytes == 0);
    const uint64_t place = record_bytes_ + uint64_t{piece} * piece_bytes_ + offset;
    TAILRACE_ASSIGN(const size_t got, file_->read_at(target, place));
    if (got != target.size())
        return Status(Code::corrupt, fmt::format("reading {} bytes at offset {} of {}: only {} are there",
                                                 target.size(), place, file_->path(), got));
    for (uint64_t done = 0; done < target.size(); done += check_block_bytes) {
        const auto block = target.subspan(done, std::min<uint64_t>(check_block_bytes, target.size() - done));
        const uint32_t expected = head_.block_crcs[piece * blocks_ + (offset + done) / check_block_bytes];
        if (const uint32_t computed = crc32c(block); computed != expected)
            return Status(
                Code::corrupt,
                fmt::format("{} at offset {}: the checksum of {} bytes is {:08x}, but {:08x} belongs "
                            "there",
                            file_->path(), place + done, block.size(), computed, expected));
    }
    return {};
}

Status ObjectReader::verify() {
    std::vector<std::byte> memory(std::min(verify_bytes, piece_bytes_));
    for (uint32_t piece = 0; piece < piece_count(head_); ++piece)
        for (uint64_t offset = 0; offset < piece_bytes_; offset += verify_bytes)
            TAILRACE_TRY(
                read(piece, offset, std::span(memory).first(std::min(verify_bytes, piece_bytes_ - offset))));
    return {};
}

}  // namespace tailrace::internal
