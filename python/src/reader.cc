// The extension's Reader: an epoch that can be read, from a directory, a file or a session.
#include "bindings.h"
#include "c_api/objects.h"

namespace tailrace::internal::python {

namespace {

// A box to fill: name of the array, offset, shape, address, bytes.
using BoxTuple = std::tuple<std::string, std::vector<uint64_t>, std::vector<uint64_t>, uintptr_t, uint64_t>;

class Reader {
  public:
    explicit Reader(tailrace_reader* handle) : handle_(handle) {}
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() { tailrace_reader_close(std::exchange(handle_, nullptr)); }
    void close() {  // may wait for the file system if this was the last name of a file
        const GilReleased released;
        tailrace_reader_close(std::exchange(handle_, nullptr));
    }

    static std::unique_ptr<Reader> open_directory(const std::string& directory,
                                                  const std::optional<std::string>& job,
                                                  std::optional<uint64_t> epoch) {
        const GilReleased released;
        tailrace_reader* handle = nullptr;
        check(tailrace_reader_open_directory(directory.c_str(), job ? job->c_str() : nullptr,
                                             epoch.value_or(TAILRACE_NEWEST), &handle));
        return std::make_unique<Reader>(handle);
    }
    static std::unique_ptr<Reader> open_file(const std::string& path) {
        const GilReleased released;
        tailrace_reader* handle = nullptr;
        check(tailrace_reader_open_file(path.c_str(), &handle));
        return std::make_unique<Reader>(handle);
    }
    // Opens the epoch, or the newest, for which `use` returns code 0 on every rank. `use` gets a reader
    // for the length of the call, and returns a code and a sentence (Checkpointer::open_and_use says
    // which codes lead to an older epoch). None: just opens it. Collective over the session's ranks.
    static std::unique_ptr<Reader> open_session(uintptr_t session, std::optional<uint64_t> epoch,
                                                const nb::object& use) {
        const GilReleased released;
        const auto alive = value_of(
            tailrace::internal::alive(reinterpret_cast<const tailrace_session*>(session), "session"));
        auto opened = value_of(alive->checkpointer->open_and_use(
            epoch, std::nullopt, [&](EpochReader& reader) { return call(use, reader); }));
        return std::make_unique<Reader>(value_of(reader_of(*alive, std::move(opened))));
    }

    uint64_t epoch() const { return alive()->key().epoch; }
    uint32_t run() const { return alive()->key().run; }
    uint32_t rank_count() const { return alive()->rank_count(); }
    std::string passed_over() const { return tailrace_reader_passed_over(handle_); }

    // Name, bytes and piece of every region of a rank, in the order of its stream.
    std::vector<std::tuple<std::string, uint64_t, std::optional<PieceTuple>>> regions(uint32_t rank) const {
        std::vector<std::tuple<std::string, uint64_t, std::optional<PieceTuple>>> all;
        const GilReleased released;
        const auto reader = alive();
        for (const Region& region : value_of(reader->manifest(rank))->regions)
            all.emplace_back(region.name, region.bytes, to_tuple(region.array));
        return all;
    }
    // By region, in the same order: the path and the offset of its bytes, if they lie together.
    std::vector<std::optional<std::pair<std::string, uint64_t>>> places(uint32_t rank) const {
        std::vector<std::optional<std::pair<std::string, uint64_t>>> all;
        const GilReleased released;
        for (auto& place : value_of(alive()->places(rank))) {
            all.emplace_back();
            if (place) all.back().emplace(std::move(place->path), place->offset);
        }
        return all;
    }
    // The rank's table of regions, with the checksums of all its data.
    nb::bytes table(uint32_t rank) const {
        std::vector<std::byte> bytes;
        {
            const GilReleased released;
            bytes = value_of(alive()->manifest_bytes(rank));
        }
        return nb::bytes(bytes.data(), bytes.size());
    }
    // Name, element type, global shape, and whether the ranks' pieces cover the array.
    std::vector<std::tuple<std::string, int, std::vector<uint64_t>, bool>> arrays() const {
        std::vector<std::tuple<std::string, int, std::vector<uint64_t>, bool>> all;
        const GilReleased released;
        const auto reader = alive();
        for (const GlobalArray& array : value_of(reader->arrays()))
            all.emplace_back(array.name, static_cast<int>(array.type), array.shape, array.complete);
        return all;
    }

    void read(uint32_t rank, const std::vector<TargetTuple>& targets) const {
        const GilReleased released;
        std::vector<RegionTarget> wanted;
        for (const auto& [name, address, bytes] : targets)
            wanted.push_back({name, memory_at(address, bytes)});
        check(alive()->read_regions(rank, wanted));
    }
    void read_box(const std::string& name, const std::vector<uint64_t>& offset,
                  const std::vector<uint64_t>& shape, uintptr_t address, uint64_t bytes) const {
        const GilReleased released;
        check(alive()->read_box(name, offset, shape, memory_at(address, bytes)));
    }
    void read_boxes(const std::vector<BoxTuple>& targets) const {
        const GilReleased released;
        std::vector<BoxTarget> boxes;
        for (const auto& [name, offset, shape, address, bytes] : targets)
            boxes.push_back({name, offset, shape, memory_at(address, bytes)});
        check(alive()->read_boxes(boxes));
    }
    void verify(uint32_t rank, const std::vector<std::string>& names) const {
        const GilReleased released;
        check(alive()->verify_regions(rank, names));
    }

  private:
    explicit Reader(EpochReader& borrowed) : borrowed_(&borrowed) {}

    static Status call(const nb::object& use, EpochReader& opened) {
        const nb::gil_scoped_acquire acquire;
        if (use.is_none()) return {};
        nb::object reader = nb::cast(new Reader(opened), nb::rv_policy::take_ownership);
        Status outcome;
        try {
            const auto [code, sentence] = nb::cast<std::pair<int, std::string>>(use(reader));
            if (code != TAILRACE_OK) outcome = Status(static_cast<Code>(code), sentence);
        } catch (const std::exception& error) {
            outcome = Status(Code::failed_state, error.what());
        }
        nb::cast<Reader&>(reader).borrowed_ = nullptr;  // Python may still refer to it
        return outcome;
    }

    std::shared_ptr<EpochReader> alive() const {
        if (borrowed_ != nullptr) return {std::shared_ptr<void>(), borrowed_};
        if (handle_ == nullptr)
            throw Failure{TAILRACE_FAILED_STATE, "this checkpoint has been closed; nothing was read"};
        auto reader = value_of(tailrace::internal::alive(handle_, "reader"))->get();
        if (reader == nullptr)
            throw Failure{TAILRACE_FAILED_STATE, "this reader's session has been closed; nothing was read"};
        return reader;
    }

    tailrace_reader* handle_ = nullptr;
    EpochReader* borrowed_ = nullptr;  // in place of a handle, while a call of `use` lasts
};

}  // namespace

void bind_reader(nb::module_& module) {
    nb::class_<Reader>(module, "Reader")
        .def_static("open_directory", &Reader::open_directory, nb::arg("directory"), nb::arg("job").none(),
                    nb::arg("epoch").none())
        .def_static("open_file", &Reader::open_file, nb::arg("path"))
        .def_static("open_session", &Reader::open_session, nb::arg("session"), nb::arg("epoch").none(),
                    nb::arg("use").none())
        .def("close", &Reader::close)
        .def_prop_ro("epoch", &Reader::epoch)
        .def_prop_ro("run", &Reader::run)
        .def_prop_ro("rank_count", &Reader::rank_count)
        .def_prop_ro("passed_over", &Reader::passed_over)
        .def("regions", &Reader::regions, nb::arg("rank"))
        .def("places", &Reader::places, nb::arg("rank"))
        .def("table", &Reader::table, nb::arg("rank"))
        .def("arrays", &Reader::arrays)
        .def("read", &Reader::read, nb::arg("rank"), nb::arg("targets"))
        .def("read_box", &Reader::read_box, nb::arg("name"), nb::arg("offset"), nb::arg("shape"),
             nb::arg("address"), nb::arg("bytes"))
        .def("read_boxes", &Reader::read_boxes, nb::arg("targets"))
        .def("verify", &Reader::verify, nb::arg("rank"), nb::arg("names"));
}

}  // namespace tailrace::internal::python
