// tailrace agent: one process per node that finishes the captured epochs of programs that have died
// (agent_process/agent_process.h), and the commands that talk to it.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "agent_process/agent_process.h"
#include "base/log.h"
#include "base/units.h"
#include "command.h"
#include "config/config.h"
#include "storage/system_path.h"
#include "text.h"
#include "tier_settings.h"

namespace tailrace::internal::tool {

namespace {

struct Options {
    std::string action = "run";
    std::string local_dir;
    std::string idle_exit;
    std::string grace = "30s";
    std::string log_file;
    bool background = false;
    bool json = false;
};

constexpr std::chrono::milliseconds longest_answer(10000);
// For locks of programs that have just been killed.
constexpr std::chrono::seconds patience(10);

Result<std::chrono::milliseconds> time_of(const std::string& text, const char* option) {
    const auto seconds = parse_age(text);
    if (!seconds.ok()) return seconds.status().with_context(option);
    return std::chrono::milliseconds(std::min<uint64_t>(*seconds, uint64_t{1} << 32) * 1000);
}

const char* name_of(DrainedEpoch::State state) {
    switch (state) {
        case DrainedEpoch::State::committed:
            return "committed";
        case DrainedEpoch::State::waiting:
            return "waiting";
        case DrainedEpoch::State::superseded:
            return "superseded";
        case DrainedEpoch::State::failed:
            return "failed";
        case DrainedEpoch::State::stopped:
            return "stopped";
    }
    return "";
}

nlohmann::json to_json(const AgentStatus& status) {
    auto epochs = nlohmann::json::array();
    for (const auto& epoch : status.epochs) {
        nlohmann::json entry = {{"job", printable(epoch.job)},   {"epoch", epoch.key.epoch},
                                {"run", epoch.key.run},          {"shared_dir", printable(epoch.shared_dir)},
                                {"state", name_of(epoch.state)}, {"bytes", epoch.bytes}};
        if (!epoch.why.ok()) entry["why"] = printable(epoch.why.message());
        if (!epoch.waiting_for.empty()) entry["waiting_for"] = epoch.waiting_for;
        epochs.push_back(std::move(entry));
    }
    nlohmann::json document = {{"ok", true},
                               {"process", status.process},
                               {"started", time_text(static_cast<uint64_t>(status.started_unix_ms))},
                               {"sessions", status.sessions},
                               {"working", status.working},
                               {"stopping", status.stopping},
                               {"epochs", std::move(epochs)}};
    if (!status.busy.empty()) document["busy"] = printable(status.busy);
    return document;
}

void show(const AgentStatus& status, const Options& options) {
    if (options.json) return print_json(to_json(status));
    print(fmt::format("agent process {}, since {}: {}, {}\n", status.process,
                      time_text(static_cast<uint64_t>(status.started_unix_ms)),
                      counted(status.sessions, "session"),
                      status.stopping  ? "ending"
                      : status.working ? "finishing epochs"
                                       : "nothing under way"));
    for (const auto& epoch : status.epochs) {
        std::string line = fmt::format("{} of {} in {}: {}", to_string(epoch.key), printable(epoch.job),
                                       printable(epoch.shared_dir), name_of(epoch.state));
        if (!epoch.waiting_for.empty()) line += fmt::format(" for {}", fmt::join(epoch.waiting_for, ", "));
        if (!epoch.why.ok()) line += ": " + printable(epoch.why.message());
        print(line + "\n");
    }
    if (!status.busy.empty()) print("passed over: " + printable(status.busy) + "\n");
}

// Whether everything that this node can do for the epochs is done.
bool all_done(const AgentStatus& status) {
    for (const auto& epoch : status.epochs)
        if (epoch.state != DrainedEpoch::State::committed && epoch.state != DrainedEpoch::State::superseded)
            return false;
    return status.busy.empty();
}

// ---- run ----------------------------------------------------------------------------------------

AgentProcess* serving = nullptr;

void stop_serving(int) {
    if (serving != nullptr) serving->stop();
}

void catch_signals() {
    struct sigaction action {};
    action.sa_handler = stop_serving;
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) (void)sigaction(signal, &action, nullptr);
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
    Descriptor log = open_descriptor(log_file, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, AT_FDCWD, 0600);
    for (const int standard : {0, 1}) (void)dup2(null.get(), standard);
    (void)dup2(log.valid() ? log.get() : null.get(), 2);
    if (chdir("/") != 0) return errno_status(errno, "leaving the working directory");
    return detached;
}

// Descriptors that a caller has left open would keep its pipes and locks alive.
void close_inherited() {
    (void)close_range(3, ~0u, 0);
}

Exit run_agent(const Options& options, const Config& config) {
    AgentProcess::Options how;
    how.config = config;
    const auto grace = time_of(options.grace, "--grace");
    if (!grace.ok()) return report(grace.status());
    how.grace = *grace;
    if (!options.idle_exit.empty()) {
        const auto idle = time_of(options.idle_exit, "--idle-exit");
        if (!idle.ok()) return report(idle.status());
        how.idle_exit = *idle;
    }
    SystemStorageOptions local_options;
    local_options.engine = IoEngine::posix;
    local_options.rules.own_in = config.local_dir;
    SystemStorageOptions shared_options;
    shared_options.engine = config.io_engine;
    shared_options.queue_depth = config.queue_depth;

    close_inherited();
    Detached detached;
    if (options.background) {
        const auto log_file =
            options.log_file.empty() ? std::string("/dev/null") : std::string(options.log_file);
        auto result = detach(log_file);
        if (!result.ok()) return report(result.status());
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
    if (!agent.ok()) {
        if (options.background) {
            tell(agent.status().message());
            return exit_failed;
        }
        return report(agent.status());
    }
    serving = agent->get();
    catch_signals();
    tell("+");
    if (!options.background) {
        print(fmt::format("agent process {} serves {}\n", getpid(), printable(config.local_dir)));
        std::fflush(stdout);  // whoever has started it may wait for this line
    }
    set_log_level(LogLevel::info);
    log(LogLevel::info, "agent process {} serves {}", getpid(), config.local_dir);
    const auto left = (*agent)->serve();
    serving = nullptr;
    if (!left.ok()) return report(left.status());
    for (const auto& epoch : left->epochs)
        if (epoch.state != DrainedEpoch::State::committed && epoch.state != DrainedEpoch::State::superseded)
            log(LogLevel::warning, "{} of {} in {} is left: {}{}", to_string(epoch.key), epoch.job,
                epoch.shared_dir, name_of(epoch.state),
                epoch.waiting_for.empty() ? "" : fmt::format(" for {}", fmt::join(epoch.waiting_for, ", ")));
    return all_done(*left) ? exit_ok : exit_damaged;
}

// ---- status, drain, stop ------------------------------------------------------------------------

Result<AgentStatus> answer_to(const Config& config, const AgentProcessMessage& question,
                              std::chrono::milliseconds longest) {
    TAILRACE_ASSIGN(auto agent, connect_to_agent(config.local_dir));
    TAILRACE_TRY(agent.send(question));
    TAILRACE_ASSIGN(const auto answer, agent.receive(longest));
    if (!answer)
        return Status(Code::timeout,
                      fmt::format("the agent of {} has not answered in time", config.local_dir));
    const auto* status = std::get_if<AgentStatus>(&*answer);
    if (status == nullptr)
        return Status(Code::transport, fmt::format("the agent of {} gave a wrong answer", config.local_dir));
    return *status;
}

Exit ask_agent(const Options& options, const Config& config) {
    const auto grace = time_of(options.grace, "--grace");
    if (!grace.ok()) return report(grace.status());
    AgentProcessMessage question = StatusAsked{};
    auto longest = longest_answer;
    if (options.action == "drain") {
        question = DrainAsked{};
        longest = std::chrono::hours(24);
    }
    if (options.action == "stop") {
        question = EndAsked{static_cast<uint64_t>(grace->count())};
        longest += *grace;
    }
    auto status = answer_to(config, question, longest);
    // A program that was killed disappears a moment before its locks do.
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (options.action == "drain" && status.ok() && !status->busy.empty() && status->sessions == 0 &&
           std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        status = answer_to(config, question, longest);
    }
    if (!status.ok()) return report(status.status());
    show(*status, options);
    return options.action == "status" || all_done(*status) ? exit_ok : exit_damaged;
}

constexpr const char* about = R"(Start one agent on each node before the program:
  tailrace agent --background          by hand, in a job script or a prolog
  srun --overlap --ntasks-per-node=1 tailrace agent &
Sessions of this user on the node find it by the node-local directory (local_dir). While a program
lives, its own threads carry its epochs to the shared directory. When it has died, the agent finishes
every epoch that was captured whole on all nodes, with the settings writers, buffers, direct_io,
bandwidth_cap and background_nice.

  tailrace agent status    what it does, and which epochs wait for which nodes
  tailrace agent drain     finish now what can be finished, and say what is left
  tailrace agent stop      finish within --grace, then end; SIGTERM does the same

Exit status: 0 all is done; 1 epochs are left (they wait for other nodes, or have failed);
3 no agent runs; 4 it could not start, for example because another agent serves the directory.)";

}  // namespace

Command add_agent(CLI::App& program) {
    auto options = std::make_shared<Options>();
    auto* command = program.add_subcommand(
        "agent", "Finish captured epochs of programs that have died, as a process of its own");
    command->add_option("action", options->action, "run (default), status, drain or stop")
        ->check(CLI::IsMember({"run", "status", "drain", "stop"}));
    command->add_option("--local-dir", options->local_dir,
                        "The node-local directory; default: the setting local_dir, as for a program");
    command->add_flag("--background", options->background, "run: return as soon as the agent listens");
    command->add_option("--log", options->log_file,
                        "run --background: write messages there; default: nowhere");
    command->add_option("--idle-exit", options->idle_exit,
                        "run: end after that long without a session and without work, such as 10min");
    command
        ->add_option("--grace", options->grace,
                     "run, stop: how long to go on finishing epochs when told to end")
        ->capture_default_str();
    command->add_flag("--json", options->json, "status, drain, stop: print JSON");
    command->footer(about);
    return [options](Storage&) {
        const auto config = tier_settings(options->local_dir);
        if (!config.ok()) return report(config.status());
        return options->action == "run" ? run_agent(*options, *config) : ask_agent(*options, *config);
    };
}

}  // namespace tailrace::internal::tool
