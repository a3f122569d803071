// Session of the extension: a session of the C interface. Regions are registered for the length of one save,
// so that no address of Python's memory is kept.
#include <map>

#include "bindings.h"
#include "c_api/objects.h"

namespace tailrace::python {

namespace {

// epoch, run, state, code and sentence of a failure, captured bytes, blocked seconds, flush seconds, where.
using EpochTuple =
    std::tuple<uint64_t, uint32_t, int, int, std::string, uint64_t, double, double, bool, bool>;

EpochTuple to_tuple(const tailrace_epoch_info& info) {
    return {info.epoch,           info.run,           info.state,
            info.why_code,        info.why,           info.captured_bytes,
            info.blocked_seconds, info.flush_seconds, info.in_local != 0,
            info.in_shared != 0};
}

class Session {
  public:
    Session(const std::vector<std::pair<std::string, std::string>>& settings,
            const std::optional<std::string>& config_file) {
        const std::unique_ptr<tailrace_options, void (*)(tailrace_options*)> options(tailrace_options_new(),
                                                                                     tailrace_options_free);
        if (options == nullptr) throw std::bad_alloc();
        if (config_file) check(tailrace_options_load(options.get(), config_file->c_str()));
        for (const auto& [key, value] : settings)
            check(tailrace_options_set(options.get(), key.c_str(), value.c_str()));
        const nb::gil_scoped_release release;
        check(tailrace_open(options.get(), &session_));
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session() {
        const nb::gil_scoped_release release;
        tailrace_close(session_);
    }

    void close() {
        tailrace_session* const session = std::exchange(session_, nullptr);
        const nb::gil_scoped_release release;
        check(tailrace_close(session));
    }

    int rank() const { return tailrace_rank(session_); }
    int rank_count() const { return tailrace_rank_count(session_); }
    std::optional<std::string> setting(const std::string& key) const {
        const char* const value = tailrace_setting(session_, key.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    }

    void save(uint64_t epoch, const std::vector<RegionTuple>& regions) {
        const nb::gil_scoped_release release;
        const std::lock_guard lock(mutex_);
        size_t registered = 0;
        tailrace_code code = TAILRACE_OK;
        std::string sentence;
        for (; registered < regions.size() && code == TAILRACE_OK; ++registered)
            code = add(regions[registered]);
        if (code == TAILRACE_OK) code = tailrace_save(session_, epoch);
        if (code != TAILRACE_OK) sentence = tailrace_last_error();
        for (size_t i = 0; i < registered; ++i)
            tailrace_unregister(session_, std::get<0>(regions[i]).c_str());
        if (code != TAILRACE_OK) throw Failure{code, sentence};
    }

    EpochTuple state(uint64_t epoch) const {
        tailrace_epoch_info info;
        check(tailrace_epoch_state(session_, epoch, &info));
        return to_tuple(info);
    }
    // False when the time was over first.
    bool wait(std::optional<uint64_t> epoch, double seconds) {
        const nb::gil_scoped_release release;
        const tailrace_code code =
            epoch ? tailrace_wait(session_, *epoch, seconds) : tailrace_wait_all(session_, seconds);
        if (code == TAILRACE_TIMEOUT) return false;
        check(code);
        return true;
    }
    std::vector<EpochTuple> list() {
        tailrace_epoch_info* infos = nullptr;
        size_t count = 0;
        {
            const nb::gil_scoped_release release;
            check(tailrace_list(session_, &infos, &count));
        }
        const std::unique_ptr<tailrace_epoch_info, void (*)(tailrace_epoch_info*)> owner(infos,
                                                                                         tailrace_list_free);
        std::vector<EpochTuple> epochs;
        for (size_t i = 0; i < count; ++i) epochs.push_back(to_tuple(infos[i]));
        return epochs;
    }

    // Collective: what one rank's `code` and `sentence` say becomes every rank's failure.
    void agree(int code, const std::string& sentence) {
        const nb::gil_scoped_release release;
        const auto alive = value_of(tailrace::alive(session_, "session"));
        check(agree_on_arguments(*alive,
                                 code == TAILRACE_OK ? Status() : Status(static_cast<Code>(code), sentence)));
    }

    tailrace_session* get() const { return session_; }

  private:
    tailrace_code add(const RegionTuple& region) {
        const auto& [name, address, bytes, piece] = region;
        void* const memory = reinterpret_cast<void*>(address);
        if (!piece) return tailrace_register(session_, name.c_str(), memory, bytes);
        const auto& [type, global_shape, offset, local_shape] = *piece;
        const tailrace_array array{static_cast<tailrace_type>(type), static_cast<int>(global_shape.size()),
                                   global_shape.data(), offset.data(), local_shape.data()};
        return tailrace_register_array(session_, name.c_str(), memory, &array);
    }

    tailrace_session* session_ = nullptr;
    std::mutex mutex_;  // one save at a time: a name is registered by one of them
};

}  // namespace

void bind_session(nb::module_& module) {
    nb::class_<Session>(module, "Session")
        .def(nb::init<const std::vector<std::pair<std::string, std::string>>&,
                      const std::optional<std::string>&>(),
             nb::arg("settings"), nb::arg("config_file").none())
        .def("close", &Session::close)
        .def_prop_ro("rank", &Session::rank)
        .def_prop_ro("rank_count", &Session::rank_count)
        .def("setting", &Session::setting, nb::arg("key"))
        .def("save", &Session::save, nb::arg("epoch"), nb::arg("regions"))
        .def("state", &Session::state, nb::arg("epoch"))
        .def("wait", &Session::wait, nb::arg("epoch").none(), nb::arg("seconds"))
        .def("list", &Session::list)
        .def("agree", &Session::agree, nb::arg("code"), nb::arg("sentence"))
        .def_prop_ro("handle",
                     [](const Session& session) { return reinterpret_cast<uintptr_t>(session.get()); });
}

}  // namespace tailrace::python
