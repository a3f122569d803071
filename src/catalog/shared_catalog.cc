// The catalog of the shared tier: directory -> names -> heads -> one checked map of every stream.
// Nothing is trusted before it was checked, and no memory is taken because of a count alone: a head
// that claims a million ranks must bring a million records. A large index is confirmed before it is
// read whole (format/table.h).
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <new>
#include <set>
#include <tuple>

#include "base/log.h"
#include "catalog/catalog.h"
#include "catalog/stream_cover.h"
#include "format/frame.h"
#include "format/table.h"

namespace tailrace::internal {

namespace {

constexpr uint64_t first_read_bytes = 64 << 10;    // holds the whole head of most files
constexpr uint64_t most_buffered_bytes = 4 << 20;  // a larger head is read piece by piece

// The head of one file. If it is small, it is read once and served from memory.
class HeadReader {
  public:
    static Result<HeadReader> open(Storage& storage, const std::string& path) {
        HeadReader reader;
        TAILRACE_ASSIGN(reader.file_, open_shared_file(storage, path));
        TAILRACE_ASSIGN(reader.file_bytes_, reader.file_->size());
        TAILRACE_TRY(reader.buffer_to(first_read_bytes));
        return reader;
    }

    uint64_t file_bytes() const { return file_bytes_; }

    // Reads [0, bytes) into memory, unless that is too much.
    Status buffer_to(uint64_t bytes) {
        bytes = std::min(bytes, file_bytes_);
        if (bytes <= buffer_.size() || bytes > most_buffered_bytes) return Status();
        size_t old_bytes = buffer_.size();
        buffer_.resize(bytes);
        TAILRACE_ASSIGN(size_t got, file_->read_at(std::span(buffer_).subspan(old_bytes), old_bytes));
        buffer_.resize(old_bytes + got);
        return Status();
    }

    // Reads as many bytes as `target` has, and fewer only where the file ends.
    Result<size_t> read_into(std::span<std::byte> target, uint64_t offset) {
        return file_->read_at(target, offset);
    }

    // Reads `bytes` bytes, and fewer only where the file ends. More than unconfirmed_table_bytes
    // were confirmed before.
    Result<std::vector<std::byte>> read(uint64_t offset, uint64_t bytes) {
        if (offset >= file_bytes_) return std::vector<std::byte>();
        bytes = std::min(bytes, file_bytes_ - offset);
        if (offset + bytes <= buffer_.size()) {
            auto piece = std::span(buffer_).subspan(offset, bytes);
            return std::vector<std::byte>(piece.begin(), piece.end());
        }
        std::vector<std::byte> target;
        try {
            target.resize(bytes);
        } catch (const std::bad_alloc&) {
            return Status(Code::out_of_memory,
                          fmt::format("reading {} bytes of the head at offset {}", bytes, offset));
        }
        TAILRACE_ASSIGN(size_t got, file_->read_at(target, offset));
        target.resize(got);
        return target;
    }

  private:
    std::unique_ptr<File> file_;
    uint64_t file_bytes_ = 0;
    std::vector<std::byte> buffer_;
};

// not_found for an `unfinished` file whose writer died before the header was durable.
Result<SharedHeader> read_header(HeadReader& reader, bool unfinished) {
    TAILRACE_ASSIGN(auto bytes, reader.read(0, shared_header_probe_bytes));
    if (unfinished && std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }))
        return Status(Code::not_found, "it has no header yet");
    TAILRACE_ASSIGN(auto header, decode_shared_header(bytes));
    TAILRACE_TRY(reader.buffer_to(data_offset(header)));
    return header;
}

Result<LeaderSlot> read_slot(HeadReader& reader, const SharedHeader& header, uint32_t leader) {
    TAILRACE_ASSIGN(auto bytes, reader.read(slot_offset(header, leader), shared_header_probe_bytes));
    return decode_leader_slot(bytes, header, leader);
}

Result<SegmentIndex> read_index(HeadReader& reader, const SharedHeader& header, const LeaderSlot& slot) {
    const uint64_t start = index_offset(header, slot.leader);
    TAILRACE_TRY(confirm_table(
        TableKind::index, slot.index_bytes, slot.index_crc,
        fmt::format("index of leader {}", slot.leader + 1),
        [&](std::span<std::byte> piece, uint64_t at) { return reader.read_into(piece, start + at); }));
    TAILRACE_ASSIGN(auto bytes, reader.read(start, slot.index_bytes));
    return decode_segment_index(bytes, header, slot, reader.file_bytes());
}

std::string name_by(const SharedHeader& header) {
    return to_string(SharedFileName{header.job, header.key, header.file_index, header.file_count, false});
}

Status check_name(const SharedHeader& header, const SharedFileName& name) {
    if (header.job == name.job && header.key == name.key && header.file_index == name.index &&
        header.file_count == name.count)
        return Status();
    return Status(Code::corrupt,
                  fmt::format("its header says that it is {}: it was renamed or replaced", name_by(header)));
}

// The K of an epoch's files. If their names disagree, the only K whose files all exist. Nothing if
// there is no such K.
std::optional<uint32_t> choose_count(const std::vector<const SharedFileEntry*>& sorted) {
    std::map<uint32_t, std::set<uint32_t>> by_count;
    for (const auto* file : sorted) by_count[file->name.count].insert(file->name.index);
    if (by_count.size() > 1)
        std::erase_if(by_count, [](const auto& entry) { return entry.second.size() < entry.first; });
    return by_count.size() == 1 ? std::optional(by_count.begin()->first) : std::nullopt;
}

// One file per index, in order. If both names of a file exist, the finished one.
Result<std::vector<const SharedFileEntry*>> choose_files(const SharedEpochFiles& files) {
    auto epoch = fmt::format("{} of job {}", to_string(files.key), files.job);
    if (files.files.empty()) return Status(Code::not_found, fmt::format("{} has no files", epoch));
    std::vector<const SharedFileEntry*> sorted;
    for (const auto& file : files.files) sorted.push_back(&file);
    std::sort(sorted.begin(), sorted.end(), [](const SharedFileEntry* a, const SharedFileEntry* b) {
        return std::tie(a->name.index, a->name.unfinished) < std::tie(b->name.index, b->name.unfinished);
    });
    const auto chosen_count = choose_count(sorted);
    if (!chosen_count) {
        const auto* first = sorted.front();
        const auto other = std::find_if(sorted.begin(), sorted.end(), [&](const SharedFileEntry* file) {
            return file->name.count != first->name.count;
        });
        return Status(Code::corrupt,
                      fmt::format("{}: by their names {} is one of {} files, and {} is one of {}", epoch,
                                  first->path, first->name.count, (*other)->path, (*other)->name.count));
    }
    const uint32_t count = *chosen_count;
    std::vector<const SharedFileEntry*> chosen;
    for (const auto* file : sorted)
        if (file->name.count == count && (chosen.empty() || chosen.back()->name.index != file->name.index))
            chosen.push_back(file);
    for (uint32_t index = 0; index < count; ++index)
        if (index >= chosen.size() || chosen[index]->name.index != index)
            return Status(Code::not_found,
                          fmt::format("{} is incomplete: {} is missing (next to {})", epoch,
                                      to_string(SharedFileName{files.job, files.key, index, count, false}),
                                      sorted.front()->path));
    return chosen;
}

// A stream's record or extent, and the file that has it.
struct FoundStream {
    StreamInfo info;
    uint32_t file = 0;
};
struct FoundExtent {
    uint32_t rank = 0;
    StreamExtent place;
};
struct Found {
    std::vector<FoundStream> streams;
    std::vector<FoundExtent> extents;
};

// Reads one file's head into `found` and `epoch`. `first` is file 0's header, empty while reading
// file 0.
Status read_file(Storage& storage, const SharedFileEntry& entry, std::optional<SharedHeader>& first,
                 SharedEpoch& epoch, Found& found) {
    TAILRACE_ASSIGN(auto reader, HeadReader::open(storage, entry.path));
    auto read = [&]() -> Status {
        TAILRACE_ASSIGN(auto header, read_header(reader, entry.name.unfinished));
        TAILRACE_TRY(check_name(header, entry.name));
        if (!first) first = header;
        if (header.run_uid != first->run_uid)
            return Status(
                Code::corrupt,
                fmt::format("it was written by another run ({:016x}) than {} ({:016x})", header.run_uid,
                            epoch.paths.empty() ? entry.path : epoch.paths.front(), first->run_uid));
        if (header.rank_count != first->rank_count)
            return Status(Code::corrupt, fmt::format("it names {} ranks, and {} names {}", header.rank_count,
                                                     epoch.paths.front(), first->rank_count));
        std::optional<SegmentIndex> first_index;
        for (uint32_t leader = 0; leader < header.leader_count; ++leader) {
            TAILRACE_ASSIGN(auto slot, read_slot(reader, header, leader));
            TAILRACE_ASSIGN(auto index, read_index(reader, header, slot));
            epoch.committed_unix_ms = std::max(epoch.committed_unix_ms, slot.committed_unix_ms);
            for (const auto& extent : index.extents)
                found.extents.push_back(
                    {extent.rank,
                     {entry.name.index, extent.file_offset, extent.stream_offset, extent.bytes}});
            if (!first_index)
                first_index = std::move(index);
            else if (first_index->streams != index.streams)
                return Status(
                    Code::corrupt,
                    fmt::format("its leaders 1 and {} disagree about the streams it holds", leader + 1));
        }
        for (const auto& stream : first_index->streams) found.streams.push_back({stream, entry.name.index});
        return Status();
    };
    TAILRACE_TRY(read().with_context(entry.path));
    epoch.paths.push_back(entry.path);
    epoch.file_bytes += reader.file_bytes();
    return Status();
}

// Every rank's stream, once. The files of one group repeat it and must agree.
Status gather_streams(std::vector<FoundStream>& streams, SharedEpoch& epoch) {
    std::stable_sort(streams.begin(), streams.end(),
                     [](const FoundStream& a, const FoundStream& b) { return a.info.rank < b.info.rank; });
    for (size_t i = 0; i < streams.size(); ++i) {
        const auto& stream = streams[i];
        if (i > 0 && streams[i - 1].info.rank == stream.info.rank) {
            if (streams[i - 1].info == stream.info) continue;
            return Status(Code::corrupt, fmt::format("{} and {} disagree about the stream of rank {}",
                                                     epoch.paths[streams[i - 1].file],
                                                     epoch.paths[stream.file], stream.info.rank));
        }
        if (stream.info.rank != epoch.streams.size()) break;  // a rank is missing
        epoch.streams.push_back({stream.info, {}});
        epoch.stream_bytes += stream.info.stream_bytes;
        if (epoch.stream_bytes > format::most_bytes)
            return Status(Code::corrupt, fmt::format("{}: the streams up to rank {} are impossibly large",
                                                     epoch.paths[stream.file], stream.info.rank));
    }
    if (epoch.streams.size() != epoch.rank_count)
        return Status(Code::corrupt,
                      fmt::format("no file from {} on holds rank {} of {}", epoch.paths.front(),
                                  epoch.streams.size(), epoch.rank_count));
    return Status();
}

}  // namespace

Status check_cover(const StreamMap& stream, const std::vector<std::string>& paths, uint32_t listed_in) {
    uint64_t end = 0;
    uint32_t file = listed_in;
    for (const auto& extent : stream.extents) {
        if (extent.stream_offset < end)
            return Status(Code::corrupt,
                          fmt::format("{} and {} both hold byte {} of the stream of rank {}", paths[file],
                                      paths[extent.file], extent.stream_offset, stream.info.rank));
        if (extent.stream_offset > end) break;
        end = extent.stream_offset + extent.bytes;
        file = extent.file;
    }
    if (end != stream.info.stream_bytes)
        return Status(Code::corrupt,
                      fmt::format("{}: nothing holds the stream of rank {} from byte {} on (it has {})",
                                  paths[listed_in], stream.info.rank, end, stream.info.stream_bytes));
    return Status();
}

Result<std::unique_ptr<File>> open_shared_file(Storage& storage, const std::string& path, DirectIo direct) {
    // A reader needs only committed files, so they do not change.
    const OpenOptions options{.access = Access::read, .direct = direct, .own = false, .unchanging = true};
    auto file = storage.open(path, options);
    // If the file system, or this kernel, cannot read as the setting says, that is not damage. The
    // file is still read.
    if (file.status().code() == Code::unsupported && direct != DirectIo::off) {
        log(LogLevel::info, "{}; reading it through the page cache", file.status().message());
        return open_shared_file(storage, path, DirectIo::off);
    }
    if (file.ok() || file.status().code() != Code::not_found) return file;
    const auto renamed_to = finished_path(path);
    if (renamed_to.empty()) return file;
    auto renamed = storage.open(renamed_to, options);
    return renamed.ok() ? std::move(renamed) : std::move(file);
}

bool has_unfinished(const SharedEpochFiles& files) {
    return std::any_of(files.files.begin(), files.files.end(),
                       [](const SharedFileEntry& file) { return file.name.unfinished; });
}

bool looks_complete(const SharedEpochFiles& files) {
    std::map<uint32_t, uint32_t> finished;  // by K: a user who copies files may leave several
    for (const auto& file : files.files)
        if (!file.name.unfinished) ++finished[file.name.count];
    return std::any_of(finished.begin(), finished.end(),
                       [](const auto& entry) { return entry.first == entry.second; });
}

std::vector<EpochKey> whole_epochs(Storage& storage, const std::vector<SharedEpochFiles>& epochs,
                                   const std::vector<EpochKey>& others, const std::vector<EpochKey>& proved) {
    std::map<uint32_t, uint64_t> greatest;  // by run: the greatest epoch of that run and all earlier ones
    auto note = [&](EpochKey key) {
        auto& epoch = greatest.try_emplace(key.run, key.epoch).first->second;
        epoch = std::max(epoch, key.epoch);
    };
    for (const auto& key : others) note(key);
    for (const auto& files : epochs)
        if (looks_complete(files)) note(files.key);
    uint64_t up_to_here = 0;
    for (auto& [run, epoch] : greatest) up_to_here = epoch = std::max(epoch, up_to_here);

    std::vector<EpochKey> whole;
    for (const auto& files : epochs) {
        if (!looks_complete(files)) continue;
        const auto run = greatest.find(files.key.run);
        const bool leaves_behind = run != greatest.begin() && std::prev(run)->second >= files.key.epoch;
        if (leaves_behind && std::find(proved.begin(), proved.end(), files.key) == proved.end() &&
            !load_shared_epoch(storage, files).ok())
            continue;
        whole.push_back(files.key);
    }
    return whole;
}

Result<std::vector<SharedEpochFiles>> list_shared(Storage& storage, const std::string& directory,
                                                  const std::string& job) {
    TAILRACE_ASSIGN(auto entries, storage.list(directory));
    std::map<std::pair<std::string, EpochKey>, SharedEpochFiles> epochs;
    for (const auto& entry : entries) {
        if (entry.is_directory) continue;
        auto name = parse_shared_file_name(entry.name);
        if (!name || (!job.empty() && name->job != job)) continue;
        auto& epoch = epochs[{name->job, name->key}];
        epoch.job = name->job;
        epoch.key = name->key;
        epoch.files.push_back({join_path(directory, entry.name), *name, entry.bytes, entry.modified});
    }
    std::vector<SharedEpochFiles> listed;
    for (auto& [key, epoch] : epochs) {
        std::sort(epoch.files.begin(), epoch.files.end(),
                  [](const SharedFileEntry& a, const SharedFileEntry& b) {
                      return std::tie(a.name.index, a.name.count, a.name.unfinished) <
                             std::tie(b.name.index, b.name.count, b.name.unfinished);
                  });
        listed.push_back(std::move(epoch));
    }
    return listed;
}

Result<std::optional<SharedEpochFiles>> find_shared(Storage& storage, const std::string& directory,
                                                    const std::string& job, EpochKey key) {
    TAILRACE_ASSIGN(auto epochs, list_shared(storage, directory, job));
    const auto found = std::find_if(epochs.begin(), epochs.end(),
                                    [&](const SharedEpochFiles& files) { return files.key == key; });
    if (found == epochs.end()) return std::optional<SharedEpochFiles>();
    return std::optional(std::move(*found));
}

std::vector<std::string> paths_of(const std::vector<SharedEpochFiles>& epochs) {
    std::vector<std::string> paths;
    for (const auto& files : epochs)
        for (const auto& file : files.files) paths.push_back(file.path);
    return paths;
}

Result<SharedEpochFiles> epoch_of_file(Storage& storage, const std::string& path) {
    TAILRACE_ASSIGN(auto reader, HeadReader::open(storage, path));
    const auto header = read_header(reader, false);
    if (!header.ok()) return header.status().with_context(path);
    if (header->file_count == 1) {
        SharedFileEntry entry{path, {header->job, header->key, 0, 1, false}, reader.file_bytes(), {}};
        return SharedEpochFiles{header->job, header->key, {std::move(entry)}};
    }
    // Under another name it is a copy, which nobody would read.
    const size_t slash = path.rfind('/');
    const auto name = parse_shared_file_name(path.substr(slash + 1));
    if (!name || !check_name(*header, *name).ok())
        return Status(
            Code::not_found,
            fmt::format("{} is one of {} files of {}, which belong together by their names: give it the "
                        "name it was written with, {}",
                        path, header->file_count, to_string(header->key), name_by(*header)));
    const std::string directory =
        slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
    TAILRACE_ASSIGN(auto listed, list_shared(storage, directory, header->job));
    for (auto& files : listed)
        if (files.key == header->key) return std::move(files);
    return Status(Code::not_found, fmt::format("{} was removed while it was examined", path));
}

namespace {

Result<SharedEpoch> load_files(Storage& storage, const SharedEpochFiles& files) {
    TAILRACE_ASSIGN(auto chosen, choose_files(files));
    SharedEpoch epoch;
    epoch.job = files.job;
    epoch.key = files.key;
    std::optional<SharedHeader> first;
    Found found;
    for (const auto* entry : chosen) TAILRACE_TRY(read_file(storage, *entry, first, epoch, found));
    epoch.run_uid = first->run_uid;
    epoch.rank_count = first->rank_count;

    auto& streams = found.streams;
    TAILRACE_TRY(gather_streams(streams, epoch));
    for (const auto& extent : found.extents) epoch.streams[extent.rank].extents.push_back(extent.place);
    auto listed = streams.begin();  // sorted by rank, every rank at least once
    for (auto& stream : epoch.streams) {
        while (listed->info.rank != stream.info.rank) ++listed;
        std::sort(
            stream.extents.begin(), stream.extents.end(),
            [](const StreamExtent& a, const StreamExtent& b) { return a.stream_offset < b.stream_offset; });
        TAILRACE_TRY(check_cover(stream, epoch.paths, listed->file));
    }
    return epoch;
}

}  // namespace

// A copy of a file under the name of another K can look like an epoch of its own. The headers tell.
Result<SharedEpoch> load_shared_epoch(Storage& storage, const SharedEpochFiles& files) {
    std::map<uint32_t, SharedEpochFiles> by_count;
    for (const auto& file : files.files) {
        auto& of_count = by_count[file.name.count];
        of_count.job = files.job;
        of_count.key = files.key;
        of_count.files.push_back(file);
    }
    std::vector<SharedEpoch> sound;
    if (by_count.size() > 1)
        for (const auto& [count, of_count] : by_count)
            if (auto loaded = load_files(storage, of_count); loaded.ok())
                sound.push_back(std::move(loaded).value());
    if (sound.size() == 1) return std::move(sound.front());
    return load_files(storage, files);
}

Result<SharedFileHead> read_shared_head(Storage& storage, const std::string& path) {
    TAILRACE_ASSIGN(auto reader, HeadReader::open(storage, path));
    SharedFileHead head;
    auto header = read_header(reader, false);
    if (!header.ok()) return header.status().with_context(path);
    head.header = *header;
    for (uint32_t leader = 0; leader < head.header.leader_count; ++leader) {
        auto slot = read_slot(reader, head.header, leader);
        auto& index = head.indexes.emplace_back();
        if (slot.ok()) index = read_index(reader, head.header, *slot);
        head.slots.push_back(std::move(slot));
    }
    return head;
}

}  // namespace tailrace::internal
