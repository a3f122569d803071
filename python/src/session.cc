// The extension's Session: a session of the C interface. Regions are registered only for the length
// of one save, so that no address of Python's memory is kept.
#include <array>
#include <map>

#include "bindings.h"
#include "c_api/objects.h"
#include "c_api/open_session.h"
#include "threads/mutex.h"
#include "transport.h"

namespace tailrace::internal::python {

namespace {

// epoch, run, state, code and sentence of a failure, captured bytes, blocked seconds, flush
// seconds, in_local, in_shared, losses survived.
using EpochTuple =
    std::tuple<uint64_t, uint32_t, int, int, std::string, uint64_t, double, double, bool, bool, uint64_t>;

EpochTuple to_tuple(const tailrace_epoch_info& info) {
    return {info.epoch,
            info.run,
            info.state,
            info.why_code,
            info.why,
            info.captured_bytes,
            info.blocked_seconds,
            info.flush_seconds,
            info.in_local != 0,
            info.in_shared != 0,
            info.losses_survived};
}

void* find_items(void* user, uint64_t* bytes) {
    const auto& region = *static_cast<const RegionTuple*>(user);
    *bytes = std::get<2>(region);
    return reinterpret_cast<void*>(std::get<1>(region));
}
int resize_nothing(void*, uint64_t) {
    return 1;  // a restore reads regions by itself (reader.cc)
}

class Session {
  public:
    // `primitives`: None for a program without ranks, else as in tailrace/_ranks.py. With
    // primitives it is collective.
    Session(const std::vector<std::pair<std::string, std::string>>& settings,
            const std::optional<std::string>& config_file, nb::object primitives) {
        if (!primitives.is_none()) transport_ = make_ranks_transport(std::move(primitives));
        const std::unique_ptr<tailrace_options, void (*)(tailrace_options*)> options(tailrace_options_new(),
                                                                                     tailrace_options_free);
        try {
            if (options == nullptr) throw std::bad_alloc();
            if (config_file) check(tailrace_options_load(options.get(), config_file->c_str()));
            for (const auto& [key, value] : settings)
                check(tailrace_options_set(options.get(), key.c_str(), value.c_str()));
        } catch (...) {
            leave();  // the others are about to wait for this rank
            throw;
        }
        const GilReleased released;
        const tailrace_code code = transport_ ? open_session(options.get(), transport_, &session_)
                                              : tailrace_open(options.get(), &session_);
        if (code == TAILRACE_OK) return;
        const std::string sentence = tailrace_last_error();
        if (transport_) transport_->end(true);  // a rank's failure is every rank's
        throw Failure{code, sentence};
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    // The program has not closed it. The other ranks may never close theirs, so this does not wait
    // for them.
    ~Session() { leave(); }

    void close() {
        tailrace_session* const session = std::exchange(session_, nullptr);
        const GilReleased released;
        const tailrace_code code = tailrace_close(session);
        const std::string sentence = code == TAILRACE_OK ? "" : tailrace_last_error();
        if (transport_) transport_->end(true);
        if (code != TAILRACE_OK) throw Failure{code, sentence};
    }

    // Ends this rank's part without the others. Data that was not flushed stays in the node-local
    // tier. Also ends calls in other threads that wait for other ranks.
    void leave() {
        tailrace_session* const session = std::exchange(session_, nullptr);
        const GilReleased released;
        if (transport_) transport_->end(false);
        tailrace_close(session);
    }

    // Call it before leave(). It gives this rank's background a moment to send its last messages to
    // the others.
    void settle() {
        const GilReleased released;
        if (transport_) transport_->settle();
    }

    int rank() const { return tailrace_rank(session_); }
    int rank_count() const { return tailrace_rank_count(session_); }
    std::optional<std::string> setting(const std::string& key) const {
        const char* const value = tailrace_setting(session_, key.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    }

    void save(uint64_t epoch, const std::vector<RegionTuple>& regions) {
        save_by(
            regions, [&] { return tailrace_save(session_, epoch); },
            [&](int code, const std::string& sentence) { tell_the_others(epoch, code, sentence); });
    }

    // Call it in place of save if this rank cannot put together what it is to save.
    void give_up(uint64_t epoch, int code, const std::string& sentence) {
        const GilReleased released;
        const MutexLock lock(mutex_);
        tell_the_others(epoch, code, sentence);
    }

    // ---- files that the program writes by itself
    void files_begin() {
        check_open();
        const GilReleased released;
        check(tailrace_files_begin(session_));
    }
    std::string files_route(const std::string& name) {
        check_open();
        const GilReleased released;
        std::array<char, TAILRACE_MAX_PATH_BYTES> path;
        check(tailrace_files_route(session_, name.c_str(), path.data(), path.size()));
        return path.data();
    }
    void files_save(uint64_t epoch, const std::vector<RegionTuple>& regions) {
        save_by(
            regions, [&] { return tailrace_files_save(session_, epoch, 1); },
            [&](int, const std::string&) { (void)tailrace_files_save(session_, epoch, 0); });
    }
    // Call it in place of files_save if the program could not write its files. The epoch fails on all ranks.
    void files_give_up(uint64_t epoch) {
        check_open();
        const GilReleased released;
        const tailrace_code code = tailrace_files_save(session_, epoch, 0);
        if (code != TAILRACE_ABORTED) check(code);
    }
    uint64_t files_restore(std::optional<uint64_t> epoch, bool of_all_ranks) {
        check_open();
        const GilReleased released;
        uint64_t restored = 0;
        check(tailrace_files_restore(session_, epoch.value_or(TAILRACE_NEWEST),
                                     of_all_ranks ? TAILRACE_FILES_OF_ALL_RANKS : 0, &restored));
        return restored;
    }
    std::string files_find(std::optional<uint32_t> rank, const std::string& name) {
        check_open();
        const GilReleased released;
        std::array<char, TAILRACE_MAX_PATH_BYTES> path;
        check(tailrace_files_find(session_, rank.value_or(TAILRACE_ANY_RANK), name.c_str(), path.data(),
                                  path.size()));
        return path.data();
    }
    std::vector<std::string> files_names(uint32_t rank) {
        check_open();
        const GilReleased released;
        size_t count = 0;
        check(tailrace_files_count(session_, rank, &count));
        std::vector<std::string> names;
        for (size_t i = 0; i < count; ++i) {
            tailrace_files_info info;
            check(tailrace_files_at(session_, rank, i, &info));
            names.emplace_back(info.name);
        }
        return names;
    }
    void files_release() {
        check_open();
        const GilReleased released;
        check(tailrace_files_release(session_));
    }

    EpochTuple state(uint64_t epoch) const {
        check_open();
        const GilReleased released;
        tailrace_epoch_info info;
        check(tailrace_epoch_state(session_, epoch, &info));
        return to_tuple(info);
    }
    // Returns false if the time ran out first.
    bool wait(std::optional<uint64_t> epoch, double seconds) {
        check_open();
        const GilReleased released;
        const tailrace_code code =
            epoch ? tailrace_wait(session_, *epoch, seconds) : tailrace_wait_all(session_, seconds);
        if (code == TAILRACE_TIMEOUT) return false;
        check(code);
        return true;
    }
    bool should_save() {
        check_open();
        const GilReleased released;
        int yes = 0;
        check(tailrace_should_save(session_, &yes));
        return yes != 0;
    }
    std::optional<std::string> should_stop() {
        check_open();
        const GilReleased released;
        const char* why = nullptr;
        check(tailrace_should_stop(session_, &why));
        return why == nullptr ? std::nullopt : std::optional<std::string>(why);
    }
    std::vector<EpochTuple> list() {
        check_open();
        tailrace_epoch_info* infos = nullptr;
        size_t count = 0;
        {
            const GilReleased released;
            check(tailrace_list(session_, &infos, &count));
        }
        const std::unique_ptr<tailrace_epoch_info, void (*)(tailrace_epoch_info*)> owner(infos,
                                                                                         tailrace_list_free);
        std::vector<EpochTuple> epochs;
        for (size_t i = 0; i < count; ++i) epochs.push_back(to_tuple(infos[i]));
        return epochs;
    }

    tailrace_session* get() const {
        check_open();
        return session_;
    }

  private:
    void check_open() const {
        if (session_ == nullptr)
            throw Failure{TAILRACE_FAILED_STATE, "this session has been closed; nothing was done"};
    }

    // Calls `save` with the regions registered, or `give_up` with why they cannot be.
    template <class Save, class GiveUp>
    void save_by(const std::vector<RegionTuple>& regions, Save&& save, GiveUp&& give_up) {
        check_open();
        const GilReleased released;
        const MutexLock lock(mutex_);
        size_t registered = 0;
        tailrace_code code = TAILRACE_OK;
        std::string sentence;
        for (; registered < regions.size() && code == TAILRACE_OK; ++registered)
            code = add(regions[registered]);
        const bool added = code == TAILRACE_OK;
        if (added) code = save();
        if (code != TAILRACE_OK) sentence = tailrace_last_error();
        for (size_t i = 0; i < registered; ++i)
            tailrace_unregister(session_, std::get<0>(regions[i]).c_str());
        if (!added) give_up(code, sentence);
        if (code != TAILRACE_OK) throw Failure{code, sentence};
    }

    // Otherwise the other ranks would wait for this rank's part, and take its next save for this
    // one.
    void tell_the_others(uint64_t epoch, int code, const std::string& sentence) {
        if (tailrace_rank_count(session_) < 2) return;
        if (const auto alive = tailrace::internal::alive(session_, "session"); alive.ok())
            (void)(*alive)->checkpointer->give_up(epoch, Status(static_cast<Code>(code), sentence));
    }

    // `region` lives until it is unregistered.
    tailrace_code add(const RegionTuple& region) {
        const auto& [name, address, bytes, piece, stride_bytes] = region;
        void* const memory = reinterpret_cast<void*>(address);
        if (!piece) return tailrace_register(session_, name.c_str(), memory, bytes);
        const auto& [type, global_shape, offset, local_shape, flags] = *piece;
        if ((flags & TAILRACE_ARRAY_LIST) != 0)
            return tailrace_register_list(session_, name.c_str(), static_cast<tailrace_type>(type),
                                          local_shape.size() < 2 ? 1 : local_shape[1], find_items,
                                          resize_nothing, const_cast<RegionTuple*>(&region));
        if (offset.size() != global_shape.size() || local_shape.size() != global_shape.size())
            return set_last_error(Status(Code::invalid_argument, "shapes and offset differ in dimensions"));
        tailrace_array array{};
        array.type = static_cast<tailrace_type>(type);
        array.dimensions = static_cast<int>(global_shape.size());
        array.global_shape = global_shape.data();
        array.offset = offset.data();
        array.local_shape = local_shape.data();
        array.flags = flags;
        if (stride_bytes.size() == global_shape.size()) array.memory_stride_bytes = stride_bytes.data();
        return tailrace_register_array(session_, name.c_str(), memory, &array);
    }

    std::shared_ptr<RanksTransport> transport_;  // of a session over ranks
    tailrace_session* session_ = nullptr;
    Mutex mutex_;  // one save at a time, because each registers its names
};

}  // namespace

void bind_session(nb::module_& module) {
    nb::class_<Session>(module, "Session")
        .def(nb::init<const std::vector<std::pair<std::string, std::string>>&,
                      const std::optional<std::string>&, nb::object>(),
             nb::arg("settings"), nb::arg("config_file").none(), nb::arg("primitives").none())
        .def("close", &Session::close)
        .def("leave", &Session::leave)
        .def("settle", &Session::settle)
        .def_prop_ro("rank", &Session::rank)
        .def_prop_ro("rank_count", &Session::rank_count)
        .def("setting", &Session::setting, nb::arg("key"))
        .def("save", &Session::save, nb::arg("epoch"), nb::arg("regions"))
        .def("give_up", &Session::give_up, nb::arg("epoch"), nb::arg("code"), nb::arg("sentence"))
        .def("files_begin", &Session::files_begin)
        .def("files_route", &Session::files_route, nb::arg("name"))
        .def("files_save", &Session::files_save, nb::arg("epoch"), nb::arg("regions"))
        .def("files_give_up", &Session::files_give_up, nb::arg("epoch"))
        .def("files_restore", &Session::files_restore, nb::arg("epoch").none(), nb::arg("of_all_ranks"))
        .def("files_find", &Session::files_find, nb::arg("rank").none(), nb::arg("name"))
        .def("files_names", &Session::files_names, nb::arg("rank"))
        .def("files_release", &Session::files_release)
        .def("state", &Session::state, nb::arg("epoch"))
        .def("wait", &Session::wait, nb::arg("epoch").none(), nb::arg("seconds"))
        .def("should_save", &Session::should_save)
        .def("should_stop", &Session::should_stop)
        .def("list", &Session::list)
        .def_prop_ro("handle",
                     [](const Session& session) { return reinterpret_cast<uintptr_t>(session.get()); });
}

}  // namespace tailrace::internal::python
