// Readers: the calls of tailrace.h onto EpochReader, with and without a session.
#include "base/nearest.h"
#include "c_api/objects.h"
#include "catalog/catalog.h"
#include "read/newest_epoch.h"
#include "threads/mutex.h"

using namespace tailrace::internal;

namespace tailrace::internal {

namespace {

// A reader, and the storage it reads through, of the epoch that `open` finds there.
template <class Open>
Result<tailrace_reader*> open_shared(Open&& open) {
    SystemStorageOptions options;
    options.engine = IoEngine::posix;  // reads are few and large
    auto object = std::make_shared<tailrace_reader>();
    TAILRACE_ASSIGN(object->storage, make_system_storage(options));
    TAILRACE_ASSIGN(auto opened, open(*object->storage));
    object->begin(std::move(opened));
    return HandleTable<tailrace_reader>::instance().add(std::move(object));
}

Result<const Region*> region_of(EpochReader& reader, uint32_t rank, const char* name) {
    TAILRACE_TRY(not_null(name, "name"));
    TAILRACE_ASSIGN(const PartManifest* manifest, reader.manifest(rank));
    if (const Region* region = find_region(*manifest, name)) return region;
    std::string sentence =
        fmt::format("rank {} saved no region \"{}\" in {}", rank, name, to_string(reader.key()));
    std::vector<std::string_view> names;
    for (const Region& region : manifest->regions) names.push_back(region.name);
    if (!names.empty()) sentence += fmt::format("; the nearest name is \"{}\"", nearest_name(name, names));
    return Status(Code::not_found, sentence);
}

Result<std::shared_ptr<EpochReader>> alive_reader(const tailrace_reader* handle) {
    TAILRACE_ASSIGN(auto object, alive(handle, "reader"));
    std::shared_ptr<EpochReader> reader = object->get();
    if (reader == nullptr)
        return Status(Code::failed_state, "this reader's session has been closed; nothing was read");
    return reader;
}

template <class Work>
tailrace_code on_reader(tailrace_reader* handle, Work&& work) noexcept {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto reader, alive_reader(handle));
        return work(*reader);
    });
}

Status check_target(const void* memory, uint64_t bytes) {
    return bytes == 0 ? Status() : not_null(memory, "memory");
}

std::span<std::byte> bytes_at(void* memory, uint64_t bytes) {
    return {static_cast<std::byte*>(memory), bytes};
}

}  // namespace

}  // namespace tailrace::internal

namespace tailrace::internal {

Result<tailrace_reader*> reader_of(tailrace_session& session, std::unique_ptr<EpochReader> opened) {
    auto object = std::make_shared<tailrace_reader>();
    object->begin(std::move(opened));
    MutexLock lock(session.mutex);
    if (session.closed)
        return Status(Code::failed_state,
                      "the session was closed while the reader was opened; there is no reader");
    std::erase_if(session.readers, [](const auto& weak) { return weak.expired(); });
    session.readers.push_back(object);
    return HandleTable<tailrace_reader>::instance().add(std::move(object));
}

}  // namespace tailrace::internal

tailrace_code tailrace_reader_open(tailrace_session* handle, uint64_t epoch, uint64_t before, unsigned flags,
                                   tailrace_reader** reader) {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto session, alive(handle, "session"));
        auto checked = not_null(reader, "reader");
        if (checked.ok()) *reader = nullptr;
        if (checked.ok() && (flags & ~TAILRACE_VERIFY) != 0)
            checked =
                Status(Code::invalid_argument,
                       fmt::format("flags {:#x}: only TAILRACE_VERIFY is known; nothing was done", flags));
        TAILRACE_TRY(agree_on_arguments(*session, checked));
        TAILRACE_ASSIGN(auto opened,
                        session->checkpointer->open_epoch(epoch_or_newest(epoch), epoch_or_newest(before),
                                                          (flags & TAILRACE_VERIFY) != 0));
        TAILRACE_ASSIGN(*reader, reader_of(*session, std::move(opened)));
        return {};
    });
}

tailrace_code tailrace_reader_open_directory(const char* shared_dir, const char* job, uint64_t epoch,
                                             tailrace_reader** reader) {
    return call([&]() -> Status {
        TAILRACE_TRY(not_null(reader, "reader"));
        *reader = nullptr;
        TAILRACE_TRY(not_null(shared_dir, "shared_dir"));
        TAILRACE_ASSIGN(*reader, open_shared([&](Storage& storage) {
            return open_newest_epoch(storage, shared_dir, job == nullptr ? "" : job, epoch_or_newest(epoch));
        }));
        return {};
    });
}

tailrace_code tailrace_reader_open_file(const char* path, tailrace_reader** reader) {
    return call([&]() -> Status {
        TAILRACE_TRY(not_null(reader, "reader"));
        *reader = nullptr;
        TAILRACE_TRY(not_null(path, "path"));
        TAILRACE_ASSIGN(*reader, open_shared([&](Storage& storage) -> Result<std::unique_ptr<EpochReader>> {
            TAILRACE_ASSIGN(const auto files, epoch_of_file(storage, path));
            return open_shared_epoch(storage, files);
        }));
        return {};
    });
}

void tailrace_reader_close(tailrace_reader* handle) {
    call_for(0, [&] {
        auto reader = HandleTable<tailrace_reader>::instance().take(handle);
        if (reader != nullptr) reader->end();
        return 0;
    });
}

uint64_t tailrace_reader_epoch(const tailrace_reader* handle) {
    return call_for(TAILRACE_NEWEST, [&]() -> uint64_t {
        auto reader = alive_reader(handle);
        return reader.ok() ? (*reader)->key().epoch : TAILRACE_NEWEST;
    });
}

uint32_t tailrace_reader_rank_count(const tailrace_reader* handle) {
    return call_for(uint32_t{0}, [&] {
        auto reader = alive_reader(handle);
        return reader.ok() ? (*reader)->rank_count() : 0;
    });
}

const char* tailrace_reader_passed_over(const tailrace_reader* handle) {
    return call_for("", [&]() -> const char* {
        auto object = alive(handle, "reader");
        return object.ok() ? (*object)->passed_over.c_str() : "";
    });
}

tailrace_code tailrace_reader_region_count(tailrace_reader* reader, uint32_t rank, size_t* count) {
    return on_reader(reader, [&](EpochReader& epoch) -> Status {
        TAILRACE_TRY(not_null(count, "count"));
        TAILRACE_ASSIGN(const auto* manifest, epoch.manifest(rank));
        *count = manifest->regions.size();
        return {};
    });
}

tailrace_code tailrace_reader_region_at(tailrace_reader* reader, uint32_t rank, size_t index,
                                        tailrace_region_info* info) {
    return on_reader(reader, [&](EpochReader& epoch) -> Status {
        TAILRACE_TRY(not_null(info, "info"));
        TAILRACE_ASSIGN(const auto* manifest, epoch.manifest(rank));
        if (index >= manifest->regions.size())
            return Status(Code::not_found,
                          fmt::format("there is no region {} of rank {} in {}: it saved {}", index, rank,
                                      to_string(epoch.key()), manifest->regions.size()));
        to_c(manifest->regions[index], *info);
        return {};
    });
}

tailrace_code tailrace_reader_region(tailrace_reader* reader, uint32_t rank, const char* name,
                                     tailrace_region_info* info) {
    return on_reader(reader, [&](EpochReader& epoch) -> Status {
        TAILRACE_TRY(not_null(info, "info"));
        TAILRACE_ASSIGN(const auto* region, region_of(epoch, rank, name));
        to_c(*region, *info);
        return {};
    });
}

tailrace_code tailrace_reader_array(tailrace_reader* reader, const char* name, tailrace_region_info* info) {
    return on_reader(reader, [&](EpochReader& epoch) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        TAILRACE_TRY(not_null(info, "info"));
        TAILRACE_ASSIGN(const auto array, epoch.array(name));
        if (array.fault && array.fault->unrestorable())
            return Status(Code::invalid_argument, array.fault->sentence);
        Region whole;
        whole.array = {array.type,   array.shape,         std::vector<uint64_t>(array.shape.size(), 0),
                       array.shape,  array.may_have_gaps, array.may_overlap,
                       array.is_list};
        TAILRACE_TRY(check_array_piece(*whole.array));
        whole.bytes = array_bytes(*whole.array);
        to_c(whole, *info);
        // The name is the reader's, which lives as long as the program may use it.
        for (uint32_t rank = 0; rank < epoch.rank_count(); ++rank) {
            TAILRACE_ASSIGN(const auto* manifest, epoch.manifest(rank));
            if (const Region* piece = find_region(*manifest, name)) {
                info->name = piece->name.c_str();
                break;
            }
        }
        return {};
    });
}

tailrace_code tailrace_reader_read(tailrace_reader* reader, uint32_t rank, const char* name, void* memory,
                                   uint64_t bytes) {
    return on_reader(reader, [&](EpochReader& epoch) -> Status {
        TAILRACE_TRY(check_target(memory, bytes));
        TAILRACE_TRY(region_of(epoch, rank, name).status());
        const RegionTarget target{name, bytes_at(memory, bytes)};
        return epoch.read_regions(rank, {&target, 1});
    });
}

tailrace_code tailrace_reader_read_box(tailrace_reader* reader, const char* name, int dimensions,
                                       const uint64_t* offset, const uint64_t* shape, void* memory,
                                       uint64_t bytes) {
    return on_reader(reader, [&](EpochReader& epoch) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        if (dimensions < 1 || dimensions > TAILRACE_MAX_DIMENSIONS)
            return Status(Code::invalid_argument,
                          fmt::format("a box of {} dimensions: 1 to {} are possible; nothing was read",
                                      dimensions, TAILRACE_MAX_DIMENSIONS));
        TAILRACE_TRY(not_null(offset, "offset"));
        TAILRACE_TRY(not_null(shape, "shape"));
        TAILRACE_TRY(check_target(memory, bytes));
        const auto count = static_cast<size_t>(dimensions);
        return epoch.read_box(name, {offset, count}, {shape, count}, bytes_at(memory, bytes));
    });
}
