#include "agent_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "storage/system_path.h"
#include "text.h"

namespace tailrace::internal::tool {

Result<std::chrono::milliseconds> time_of(const std::string& text, const char* option) {
    const auto seconds = parse_age(text);
    if (!seconds.ok()) return seconds.status().with_context(option);
    return std::chrono::milliseconds(std::min<uint64_t>(*seconds, uint64_t{1} << 32) * 1000);
}

bool nothing_is_left(const AgentStatus& status) {
    return status.left == 0 && status.busy.empty() && status.failed.empty();
}

namespace {

// Whatever the reason.
Exit could_not_start(const Status& why) {
    (void)report(why);
    return exit_failed;
}

std::atomic<AgentProcess*> serving = nullptr;

void stop_serving(int) {
    if (AgentProcess* const agent = serving.load()) agent->stop();
}

void on_end_signals(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) (void)sigaction(signal, &action, nullptr);
}

void catch_signals() {
    on_end_signals(stop_serving);
    (void)std::signal(SIGPIPE, SIG_IGN);
}

// Leaves the terminal and everything that was inherited. The parent waits on a pipe until the agent
// listens, or has failed to, and then returns from here with what to say.
struct Detached {
    bool parent = false;
    Exit exit = exit_ok;
    Descriptor tell;  // the child's end of the pipe
};
Result<Detached> detach(const std::string& log_file) {
    const Descriptor log =
        open_descriptor(log_file, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, AT_FDCWD, 0600);
    if (!log.valid()) return path_error(errno, "opening the log", log_file).with_context("--log");
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno_status(errno, "making a pipe");
    Descriptor hear(ends[0]);
    Detached detached;
    detached.tell = Descriptor(ends[1]);
    const pid_t child = fork();
    if (child < 0) return errno_status(errno, "starting the agent in the background");
    if (child > 0) {
        detached.parent = true;
        (void)detached.tell.close();
        std::string said;
        char bytes[1024];
        for (ssize_t got = 0; (got = read(hear.get(), bytes, sizeof bytes)) != 0;) {
            if (got < 0 && errno != EINTR) break;
            if (got > 0) said.append(bytes, static_cast<size_t>(got));
        }
        const bool listens = said.starts_with('+');
        if (!listens)
            std::fprintf(stderr, "tailrace: %s\n",
                         said.empty() ? "the agent has died" : printable(said).c_str());
        detached.exit = listens ? exit_ok : exit_failed;
        return detached;
    }
    (void)setsid();
    const Descriptor null = open_descriptor("/dev/null", O_RDWR);
    for (const int standard : {0, 1}) (void)dup2(null.get(), standard);
    (void)dup2(log.get(), 2);
    if (chdir("/") != 0) return errno_status(errno, "leaving the working directory");
    return detached;
}

// Descriptors that a caller has left open would keep its pipes and locks alive.
void close_inherited() {
    (void)close_range(3, ~0u, 0);
}

}  // namespace

Exit run_agent(const AgentRun& options, const Config& config, std::shared_ptr<AgentWorld> world,
               const std::function<Status(const Status&)>& ready) {
    AgentProcess::Options how;
    const bool by_mpi = world != nullptr;
    how.world = std::move(world);
    how.config = config;
    const auto grace = time_of(options.grace, "--grace");
    if (!grace.ok()) return report(grace.status());
    how.grace = *grace;
    if (!options.idle_exit.empty()) {
        const auto idle = time_of(options.idle_exit, "--idle-exit");
        if (!idle.ok()) return report(idle.status());
        how.idle_exit = *idle;
    }
    how.for_lost.reset();
    if (options.for_lost != "never") {
        const auto for_lost = time_of(options.for_lost, "--for-lost");
        if (!for_lost.ok())
            return report(Status(for_lost.status().code(), for_lost.status().message() + "; or never"));
        how.for_lost = *for_lost;
    }
    SystemStorageOptions local_options;
    local_options.engine = IoEngine::posix;
    local_options.rules.own_in = config.local_dir;
    SystemStorageOptions shared_options;
    shared_options.engine = config.io_engine;
    shared_options.queue_depth = config.queue_depth;

    if (!by_mpi) close_inherited();  // MPI has descriptors that it needs
    Detached detached;
    if (options.background) {
        const auto log_file =
            options.log_file.empty() ? std::string("/dev/null") : std::string(options.log_file);
        auto result = detach(log_file);
        if (!result.ok()) return could_not_start(result.status());
        detached = std::move(*result);
        if (detached.parent) return detached.exit;
    }
    const auto tell = [&](const std::string& text) {
        if (detached.tell.valid()) (void)!write(detached.tell.get(), text.data(), text.size());
        (void)detached.tell.close();
    };
    auto local = make_system_storage(local_options);
    auto shared = make_system_storage(shared_options);
    auto agent = local.ok() && shared.ok() ? AgentProcess::create(how, *local, *shared)
                                           : (local.ok() ? shared.status() : local.status());
    if (const Status begun = ready(agent.status()); !begun.ok()) agent = begun;
    if (!agent.ok()) {
        if (options.background) {
            tell(agent.status().message());
            return exit_failed;
        }
        return could_not_start(agent.status());
    }
    serving = agent->get();
    catch_signals();
    tell("+");
    if (!options.background) {
        print(fmt::format("agent process {} serves {}\n", getpid(), printable(config.local_dir)));
        std::fflush(stdout);  // whoever has started it may wait for this line
    }
    set_log_level(LogLevel::info);
    log(LogLevel::info, "agent process {} serves {}{}", getpid(), config.local_dir,
        by_mpi ? fmt::format(", as agent {} of {}", how.world->place().agent, how.world->place().agents)
               : "");
    const auto left = (*agent)->serve();
    // From here on nothing is left to finish: a signal ends the process, which may wait for other agents.
    on_end_signals(SIG_DFL);
    serving = nullptr;
    if (!left.ok()) return report(left.status());
    for (const auto& epoch : left->epochs)
        if (epoch.state != DrainedEpoch::State::committed && epoch.state != DrainedEpoch::State::superseded)
            log(LogLevel::warning, "{} of {} in {} is left: {}{}", to_string(epoch.key), epoch.job,
                epoch.shared_dir, name_of(epoch.state),
                epoch.waiting_for.empty() ? "" : " for " + to_string(epoch.waiting_for));
    return nothing_is_left(*left) ? exit_ok : exit_damaged;
}

Exit become_mpi_agent(const AgentRun& options) {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    const std::string program = (self.parent_path() / "tailrace-agent-mpi").string();
    if (options.background)
        return report(Status(Code::invalid_argument, "--mpi: the launcher starts agents in the background"));
    std::vector<std::string> words{program, "--grace", options.grace, "--for-lost", options.for_lost};
    if (!options.local_dir.empty()) words.insert(words.end(), {"--local-dir", options.local_dir});
    if (!options.idle_exit.empty()) words.insert(words.end(), {"--idle-exit", options.idle_exit});
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execv(program.c_str(), pointers.data());
    return could_not_start(
        Status(Code::not_found, fmt::format("--mpi: {} cannot be started ({}); this tailrace may have been "
                                            "built without MPI",
                                            program, std::strerror(errno))));
}

}  // namespace tailrace::internal::tool
