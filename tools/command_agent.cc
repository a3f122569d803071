// tailrace agent: one process per node that finishes the captured epochs of programs that have died
// (agent_process/agent_process.h), and the commands that talk to it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "agent_process/agent_process.h"
#include "agent_run.h"
#include "base/log.h"
#include "base/units.h"
#include "command.h"
#include "config/config.h"
#include "storage/system_path.h"
#include "text.h"
#include "tier_settings.h"

namespace tailrace::internal::tool {

namespace {

struct Options : AgentRun {
    std::string action = "run";
    bool mpi = false;
    bool json = false;
};

constexpr std::chrono::milliseconds longest_answer(10000);
// How much longer than the grace an agent may take to end: for what its pass is at, and to part from the
// programs that it carries.
constexpr std::chrono::milliseconds longest_end(30000);
// For locks of programs that have just been killed.
constexpr std::chrono::seconds patience(10);

nlohmann::json to_json(const AgentStatus& status) {
    auto epochs = nlohmann::json::array();
    for (const auto& epoch : status.epochs) {
        nlohmann::json entry = {{"job", printable(epoch.job)},   {"epoch", epoch.key.epoch},
                                {"run", epoch.key.run},          {"shared_dir", printable(epoch.shared_dir)},
                                {"state", name_of(epoch.state)}, {"bytes", epoch.own_bytes}};
        if (!epoch.why.ok()) entry["why"] = printable(epoch.why.message());
        if (!epoch.waiting_for.empty()) entry["waiting_for"] = texts_of(epoch.waiting_for);
        epochs.push_back(std::move(entry));
    }
    nlohmann::json document = {{"ok", true},
                               {"process", status.process},
                               {"started", time_text(status.started_unix_ms)},
                               {"sessions", status.sessions},
                               {"working", status.working},
                               {"stopping", status.stopping},
                               {"epochs", std::move(epochs)}};
    auto carried = nlohmann::json::array();
    for (const auto& node : status.carried)
        carried.push_back({{"job", printable(node.job)},
                           {"run", node.run},
                           {"shared_dir", printable(node.shared_dir)},
                           {"node", node.node},
                           {"nodes", node.nodes},
                           {"ranks", node.ranks},
                           {"connected", node.connected},
                           {"epochs", node.epochs},
                           {"ending", node.ending}});
    document["carries"] = status.carries;
    document["carried"] = std::move(carried);
    document["left"] = status.left;
    if (!status.busy.empty()) document["busy"] = printable(status.busy);
    if (!status.failed.empty()) document["failed"] = printable(status.failed);
    return document;
}

void show(const AgentStatus& status, const Options& options) {
    if (options.json) return print_json(to_json(status));
    print(fmt::format("agent process {}, since {}: {}, {}\n", status.process,
                      time_text(status.started_unix_ms),
                      counted(status.sessions + status.carried.size(), "session"),
                      status.stopping   ? "ending"
                      : status.working  ? "finishing the epochs that programs have left"
                      : status.left > 0 ? "not finishing anything just now"
                                        : "nothing to finish for programs that have ended"));
    for (const auto& node : status.carried)
        print(fmt::format("carries {}, run {}, node {} of {}, in {}: {}, {} in progress\n",
                          printable(node.job), node.run, node.node, node.nodes, printable(node.shared_dir),
                          node.connected > 0 ? counted(node.connected, "rank") + " connected"
                                             : std::string("the program has ended"),
                          counted(node.epochs, "epoch")));
    for (const auto& epoch : status.epochs) {
        std::string line = fmt::format("{} of {} in {}: {}", to_string(epoch.key), printable(epoch.job),
                                       printable(epoch.shared_dir), name_of(epoch.state));
        if (!epoch.waiting_for.empty()) line += " for " + printable(to_string(epoch.waiting_for));
        if (!epoch.why.ok()) line += ": " + printable(epoch.why.message());
        print(line + "\n");
    }
    if (!status.busy.empty()) print("not now: " + printable(status.busy) + "\n");
    if (!status.failed.empty()) print("failed: " + printable(status.failed) + "\n");
}

// ---- status, drain, stop ------------------------------------------------------------------------

Result<AgentStatus> answer_to(const Config& config, const AgentProcessMessage& question,
                              std::chrono::milliseconds longest) {
    TAILRACE_ASSIGN(auto agent, connect_to_agent(config.local_dir));
    TAILRACE_TRY(agent.send(question));
    const auto deadline = std::chrono::steady_clock::now() + longest;
    std::optional<AgentProcessMessage> answer;
    while (!answer) {
        TAILRACE_ASSIGN(answer, agent.receive(std::min(longest, longest_answer)));
        if (answer) break;
        if (std::chrono::steady_clock::now() >= deadline)
            return Status(
                Code::timeout,
                fmt::format("the agent of {} has not answered in time; is it stopped, or its machine "
                            "overloaded?",
                            config.local_dir));
        if (!std::holds_alternative<DrainAsked>(question)) continue;
        // It takes its time. An agent that does not even say how far it is has been stopped.
        TAILRACE_ASSIGN(const auto now, answer_to(config, StatusAsked{}, longest_answer));
        fmt::print(stderr, "tailrace: the agent still works; {} left\n", counted(now.left, "epoch"));
    }
    const auto* status = std::get_if<AgentStatus>(&*answer);
    if (status == nullptr)
        return Status(Code::transport,
                      fmt::format("the agent of {} gave an invalid answer", config.local_dir));
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
        longest = *grace + longest_end;
    }
    auto status = answer_to(config, question, longest);
    // A program that was killed takes a moment to die, and its locks one more.
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (options.action == "drain" && status.ok() && !status->busy.empty() &&
           std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        status = answer_to(config, question, longest);
    }
    if (!status.ok()) return report(status.status());
    show(*status, options);
    return options.action == "status" || nothing_is_left(*status) ? exit_ok : exit_damaged;
}

constexpr const char* about = R"(Start one agent on each node before the program:
  tailrace agent --background          by hand, in a job script or a prolog
  srun --overlap --ntasks-per-node=1 tailrace agent &
Sessions of this user on the node find the agent by the node-local directory (local_dir). While a
program lives, its own threads carry its epochs to the shared directory. Agents do so instead (setting
agent_carries) if they were started by
  srun --overlap --ntasks-per-node=1 tailrace agent --mpi &      (mpiexec -ppn 1 ...)
When the program has died, the agent finishes every epoch that all nodes have captured completely. It
uses the settings writers, buffers, direct_io, bandwidth_cap and background_nice. With redundancy =
partner it also writes the share of a lost node.

  tailrace agent status    show what it does, and which epochs wait for which nodes
  tailrace agent drain     finish all epochs that can be finished now, and say what is left; what a
                           program that still runs has captured is left to it
  tailrace agent stop      finish within --grace, then end; SIGTERM does the same

Exit status: 0 nothing is left to do; 1 epochs are left (they wait for other nodes, or have failed);
2 an option or a setting is invalid; 3 no agent is running (status, drain, stop); 4 the agent could not
start, for example because another agent serves the directory or --log cannot be written.)";

}  // namespace

Command add_agent(CLI::App& program) {
    auto options = std::make_shared<Options>();
    auto* command = program.add_subcommand(
        "agent", "Run a process that finishes captured epochs of programs that have died");
    command->add_option("action", options->action, "run (default), status, drain or stop")
        ->check(CLI::IsMember({"run", "status", "drain", "stop"}));
    command->add_option("--local-dir", options->local_dir,
                        "The node-local directory (default: the setting local_dir)");
    command->add_flag(
        "--mpi", options->mpi,
        "run: reach the agents of other nodes by MPI, and carry the epochs of running programs");
    command->add_flag("--background", options->background, "run: return as soon as the agent listens");
    command->add_option("--log", options->log_file,
                        "run --background: append messages to this file (default: no messages)");
    command->add_option("--idle-exit", options->idle_exit,
                        "run: end after this time without a session and without work, such as 10min");
    command
        ->add_option("--grace", options->grace,
                     "run, stop: how long the agent goes on finishing epochs when it is told to end")
        ->capture_default_str();
    command
        ->add_option(
            "--for-lost", options->for_lost,
            "run: take a node for lost if its share of an epoch has been missing for this time, and write "
            "that share from the copy on this node, if there is one; or never")
        ->capture_default_str();
    command->add_flag("--json", options->json, "status, drain, stop: print JSON");
    command->footer(about);
    return [options](Storage&) {
        if (options->mpi && options->action == "run") return become_mpi_agent(*options);
        const auto config = tier_settings(options->local_dir);
        if (!config.ok()) return report(config.status());
        return options->action == "run" ? run_agent(*options, *config, nullptr)
                                        : ask_agent(*options, *config);
    };
}

}  // namespace tailrace::internal::tool
