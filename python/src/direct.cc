// Epochs without a session, for the extension: src/direct/direct_epoch.h as Python calls it.
#include <cstdlib>
#include <variant>

#include "bindings.h"
#include "config/config.h"
#include "direct/direct_epoch.h"
#include "memory/stream_copy.h"
#include "threads/mutex.h"

namespace tailrace::internal::python {

namespace {

// Name, bytes, and the piece if the region is one of a global array.
using ShapeTuple = std::tuple<std::string, uint64_t, std::optional<PieceTuple>>;
// Path and offset of a run.
using PlaceTuple = std::pair<std::string, uint64_t>;
// Name and content of a region of a rank's tail.
using TailTuple = std::pair<std::string, nb::bytes>;
// A rank that leaves its head to the coordinator: regions, their checksums, the runs' offsets in the
// files, and its tail.
using RankTuple = std::tuple<std::vector<ShapeTuple>, std::vector<std::vector<uint32_t>>,
                             std::vector<uint64_t>, std::vector<TailTuple>>;
// A rank that has written its stream (WrittenRank): the rank, the stream's bytes, the manifest's
// bytes and checksum, the digest of its regions, and for each of its files the extents (offset in
// the stream, bytes, offset in the file) and the end.
using InFileTuple = std::pair<std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>, uint64_t>;
using WrittenTuple = std::tuple<uint32_t, uint64_t, uint64_t, uint32_t, uint64_t, std::vector<InFileTuple>>;

RegionShape to_shape(const ShapeTuple& from) {
    const auto& [name, bytes, piece] = from;
    RegionShape shape{name, bytes, std::nullopt};
    if (piece) {
        const auto& [type, global_shape, offset, local_shape, flags] = *piece;
        if (type < 0 || type >= element_type_count)
            throw Failure{TAILRACE_INVALID_ARGUMENT, "there is no element type " + std::to_string(type)};
        shape.array = ArrayPiece{static_cast<ElementType>(type),
                                 global_shape,
                                 offset,
                                 local_shape,
                                 (flags & TAILRACE_ARRAY_GAPS) != 0,
                                 (flags & TAILRACE_ARRAY_OVERLAP) != 0};
    }
    return shape;
}
std::vector<RegionShape> to_shapes(const std::vector<ShapeTuple>& from) {
    std::vector<RegionShape> shapes;
    for (const ShapeTuple& shape : from) shapes.push_back(to_shape(shape));
    return shapes;
}

std::vector<RegionTail> to_tail(const std::vector<TailTuple>& from) {
    std::vector<RegionTail> all;
    for (const auto& [name, bytes] : from) {
        const auto* data = reinterpret_cast<const std::byte*>(bytes.c_str());
        all.push_back({{name, bytes.size(), std::nullopt}, {data, data + bytes.size()}});
    }
    return all;
}

WrittenTuple to_tuple(const WrittenRank& rank) {
    std::vector<InFileTuple> files;
    for (const auto& in_file : rank.files) {
        auto& [extents, end] = files.emplace_back();
        for (const Extent& extent : in_file.extents)
            extents.emplace_back(extent.stream_offset, extent.bytes, extent.file_offset);
        end = in_file.end;
    }
    const StreamInfo& info = rank.info;
    return {info.rank,         info.stream_bytes,  info.manifest_bytes,
            info.manifest_crc, rank.shapes_digest, std::move(files)};
}
WrittenRank to_written(const WrittenTuple& from) {
    const auto& [rank, stream_bytes, manifest_bytes, manifest_crc, digest, files] = from;
    WrittenRank written{{rank, stream_bytes, manifest_bytes, manifest_crc}, digest, {}};
    for (const auto& [extents, end] : files) {
        auto& in_file = written.files.emplace_back();
        for (const auto& [stream_offset, bytes, file_offset] : extents)
            in_file.extents.push_back({rank, stream_offset, bytes, file_offset});
        in_file.end = end;
    }
    return written;
}
DirectEntry to_entry(const std::variant<RankTuple, WrittenTuple>& from) {
    if (const auto* written = std::get_if<WrittenTuple>(&from)) return to_written(*written);
    const auto& [regions, crcs, offsets, tail] = std::get<RankTuple>(from);
    return DirectRank{to_shapes(regions), crcs, offsets, to_tail(tail)};
}

// As the environment says (TAILRACE_IO_ENGINE, TAILRACE_QUEUE_DEPTH), because there is no session
// with settings.
std::shared_ptr<Storage> make_storage() {
    Config config;
    for (const auto& [variable, key] :
         {std::pair{"TAILRACE_IO_ENGINE", "io_engine"}, {"TAILRACE_QUEUE_DEPTH", "queue_depth"}})
        if (const char* value = std::getenv(variable)) check(set_config(config, key, value));
    SystemStorageOptions options;
    options.engine = config.io_engine;
    options.queue_depth = config.queue_depth;
    return value_of(make_system_storage(options));
}

// The number of bytes of each of a rank's runs in its files.
std::vector<uint64_t> run_bytes(const std::vector<ShapeTuple>& regions, uint32_t runs) {
    const GilReleased released;
    std::vector<uint64_t> bytes;
    for (const RegionRun& run : value_of(lay_out_regions(to_shapes(regions), runs)).runs)
        bytes.push_back(run.bytes);
    return bytes;
}

// The room for a rank's manifest and tail (name and bytes of each region) before its data.
uint64_t head(const std::vector<ShapeTuple>& regions,
              const std::vector<std::pair<std::string, uint64_t>>& tail) {
    const GilReleased released;
    std::vector<RegionShape> behind;
    for (const auto& [name, bytes] : tail) behind.push_back({name, bytes, std::nullopt});
    return value_of(head_bytes(to_shapes(regions), behind));
}

std::vector<std::span<const std::byte>> to_memory(const std::vector<RegionShape>& shapes,
                                                  const std::vector<uintptr_t>& addresses) {
    if (addresses.size() != shapes.size())
        throw Failure{TAILRACE_INVALID_ARGUMENT,
                      "regions and addresses differ in number; nothing was written"};
    std::vector<std::span<const std::byte>> memory;
    for (size_t i = 0; i < shapes.size(); ++i) memory.push_back(memory_at(addresses[i], shapes[i].bytes));
    return memory;
}
std::vector<RunPlace> to_places(const std::vector<PlaceTuple>& from) {
    std::vector<RunPlace> to;
    for (const auto& [path, offset] : from) to.push_back({path, offset});
    return to;
}

std::vector<std::vector<uint32_t>> write(const std::vector<ShapeTuple>& regions,
                                         const std::vector<uintptr_t>& addresses,
                                         const std::vector<PlaceTuple>& places, uint32_t threads,
                                         uint64_t buffer_bytes, int nice) {
    const GilReleased released;
    const auto shapes = to_shapes(regions);
    const auto memory = to_memory(shapes, addresses);
    const auto layout = value_of(lay_out_regions(shapes, static_cast<uint32_t>(places.size())));
    const auto storage = make_storage();
    return value_of(write_runs(*storage, layout, memory, to_places(places),
                               {.threads = threads, .buffer_bytes = buffer_bytes, .nice = nice}));
}

WrittenTuple write_whole(uint32_t rank, uint32_t ranks, const std::vector<ShapeTuple>& regions,
                         const std::vector<TailTuple>& tail, const std::vector<uintptr_t>& addresses,
                         uint64_t head_offset, const std::vector<PlaceTuple>& places, uint32_t threads,
                         uint64_t buffer_bytes, int nice) {
    auto behind = to_tail(tail);  // with the GIL
    const GilReleased released;
    const auto shapes = to_shapes(regions);
    const auto memory = to_memory(shapes, addresses);
    const auto storage = make_storage();
    return to_tuple(value_of(write_stream(*storage, rank, ranks, shapes, std::move(behind), memory,
                                          {head_offset, to_places(places)},
                                          {.threads = threads, .buffer_bytes = buffer_bytes, .nice = nice})));
}

uint64_t digest_of(const std::vector<ShapeTuple>& regions) {
    const GilReleased released;
    return shapes_digest(to_shapes(regions));
}
CheckedArrays check_all(const std::vector<std::vector<ShapeTuple>>& ranks) {
    const GilReleased released;
    std::vector<std::vector<RegionShape>> all;
    for (const auto& regions : ranks) all.push_back(to_shapes(regions));
    return value_of(CheckedArrays::check(all));
}

// Copies memory for staging. The memory is the caller's, and does not overlap.
void copy_memory(uintptr_t target, uintptr_t source, uint64_t bytes) {
    const GilReleased released;
    stream_copy(memory_at(source, bytes), memory_at(target, bytes).data());
}

// The coordinator's part.
class Epoch {
  public:
    Epoch(const std::string& directory, const std::string& job, uint64_t epoch, uint32_t files,
          uint32_t ranks)
        : storage_(make_storage()) {
        const GilReleased released;
        epoch_ = value_of(DirectEpoch::begin(
            *storage_, {.directory = directory, .job = job, .epoch = epoch, .files = files, .ranks = ranks}));
        paths_ = epoch_->paths();
        data_start_ = epoch_->data_start();
    }
    Epoch(const Epoch&) = delete;
    Epoch& operator=(const Epoch&) = delete;
    ~Epoch() { epoch_.reset(); }

    const std::vector<std::string>& paths() const { return paths_; }
    uint64_t data_start() const { return data_start_; }

    void commit(const std::vector<std::variant<RankTuple, WrittenTuple>>& ranks,
                const CheckedArrays& checked) {
        std::vector<DirectEntry> all;
        for (const auto& rank : ranks) all.push_back(to_entry(rank));
        const GilReleased released;
        const MutexLock lock(mutex_);
        if (epoch_ == nullptr)
            throw Failure{TAILRACE_FAILED_STATE, "this epoch has been given up; nothing was committed"};
        check(epoch_->commit(all, checked));
    }
    // Removes what was not committed, and releases the directory.
    void close() {
        const GilReleased released;
        const MutexLock lock(mutex_);
        epoch_.reset();
    }

  private:
    std::shared_ptr<Storage> storage_;  // outlives the epoch
    std::vector<std::string> paths_;
    uint64_t data_start_ = 0;
    Mutex mutex_;
    std::unique_ptr<DirectEpoch> epoch_ GUARDED_BY(mutex_);
};

}  // namespace

void bind_direct(nb::module_& module) {
    module.def("first_file_of", &first_file_of, nb::arg("rank"), nb::arg("ranks"), nb::arg("files"));
    module.def("last_file_of", &last_file_of, nb::arg("rank"), nb::arg("ranks"), nb::arg("files"));
    module.def("run_bytes", &run_bytes, nb::arg("regions"), nb::arg("runs"));
    module.def("head_bytes", &head, nb::arg("regions"), nb::arg("tail"));
    module.def("write_runs", &write, nb::arg("regions"), nb::arg("addresses"), nb::arg("places"),
               nb::arg("threads"), nb::arg("buffer_bytes"), nb::arg("nice"));
    module.def("write_stream", &write_whole, nb::arg("rank"), nb::arg("ranks"), nb::arg("regions"),
               nb::arg("tail"), nb::arg("addresses"), nb::arg("head_offset"), nb::arg("places"),
               nb::arg("threads"), nb::arg("buffer_bytes"), nb::arg("nice"));
    module.def("shapes_digest", &digest_of, nb::arg("regions"));
    nb::class_<CheckedArrays>(module, "CheckedArrays")
        .def_static("check", &check_all, nb::arg("ranks"))
        .def_prop_ro("digests", &CheckedArrays::digests);
    module.def("copy_memory", &copy_memory, nb::arg("target"), nb::arg("source"), nb::arg("bytes"));
    nb::class_<Epoch>(module, "DirectEpoch")
        .def(nb::init<const std::string&, const std::string&, uint64_t, uint32_t, uint32_t>(),
             nb::arg("directory"), nb::arg("job"), nb::arg("epoch"), nb::arg("files"), nb::arg("ranks"))
        .def_prop_ro("paths", &Epoch::paths)
        .def_prop_ro("data_start", &Epoch::data_start)
        .def("commit", &Epoch::commit, nb::arg("ranks"), nb::arg("checked"))
        .def("close", &Epoch::close);
}

}  // namespace tailrace::internal::python
