// The extension's StopReasons: why a program that has no session is to stop, apart from signals, which
// Python catches itself. The rules are those of sessions (when/rules.h).
#include <algorithm>
#include <ctime>

#include "base/time_text.h"
#include "bindings.h"
#include "config/config.h"
#include "threads/executor.h"
#include "threads/wall_clock.h"
#include "when/halt_watch.h"
#include "when/rules.h"

namespace tailrace::internal::python {

namespace {

class StopReasons {
  public:
    StopReasons(const std::string& directory,
                const std::vector<std::pair<std::string, std::string>>& settings)
        : config_(value_of(complete(directory, settings))),
          storage_(value_of(make_system_storage({.engine = IoEngine::posix}))),
          halts_(*storage_, config_.shared_dir),
          begin_(SteadyClock::now()) {
        rules_.stop_before_seconds = static_cast<double>(config_.stop_before_ms) / 1e3;
    }

    // One process of the job asks, after each step. `saves`: made so far. `save_seconds`: what the
    // slowest of the last ones has taken until it was durable.
    std::optional<std::string> why(uint64_t saves, double save_seconds) {
        const GilReleased released;
        const auto now = SteadyClock::now();
        if (last_) slowest_ = std::max(now - *last_, slowest_ - slowest_ / 50);
        last_ = now;
        Situation situation;
        situation.costs.most_flush_seconds = save_seconds;
        situation.between_calls_seconds = std::chrono::duration<double>(slowest_).count();
        const double now_unix = static_cast<double>(unix_ms_now()) / 1e3;
        if (const auto end = parse_moment(config_.job_end, 0); end.ok())
            situation.left_seconds = static_cast<double>(*end) - now_unix;
        if (config_.job_minutes > 0) {
            const double left =
                60.0 * config_.job_minutes - std::chrono::duration<double>(now - begin_).count();
            situation.left_seconds = std::min(left, situation.left_seconds.value_or(left));
        }
        const auto halt = halts_.ask({});
        if (counts_anew(halt_, halt)) saves_before_halt_ = saves;
        halt_ = halt;
        const uint64_t since = saves - std::min(saves, saves_before_halt_);
        const auto second = static_cast<int64_t>(now_unix);
        const auto reason = why_stop(rules_, situation, std::nullopt, halt, since, second);
        if (halt && due_condition(rules_, situation, *halt, since, second)) halts_.obeyed(*halt);
        return reason;
    }

    void close() {
        const GilReleased released;
        halts_.finish();
    }

  private:
    static Result<Config> complete(const std::string& directory,
                                   const std::vector<std::pair<std::string, std::string>>& settings) {
        Config config;
        TAILRACE_TRY(load_config_environment(config));
        config.shared_dir = directory;
        for (const auto& [key, value] : settings) TAILRACE_TRY(set_config(config, key, value));
        TAILRACE_TRY(complete_config(config, 1));
        return config;
    }

    const Config config_;
    const std::shared_ptr<Storage> storage_;
    HaltWatch halts_;
    const SteadyClock::time_point begin_;
    WhenRules rules_;
    std::optional<SteadyClock::time_point> last_;
    SteadyClock::duration slowest_{0};
    std::optional<Halt> halt_;
    uint64_t saves_before_halt_ = 0;
};

}  // namespace

void bind_stopping(nb::module_& module) {
    nb::class_<StopReasons>(module, "StopReasons")
        .def(nb::init<const std::string&, const std::vector<std::pair<std::string, std::string>>&>(),
             nb::arg("directory"), nb::arg("settings"))
        .def("why", &StopReasons::why, nb::arg("saves"), nb::arg("save_seconds"))
        .def("close", &StopReasons::close);
}

}  // namespace tailrace::internal::python
