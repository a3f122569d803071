// tailrace-agent-mpi: what `tailrace agent --mpi` becomes. An agent process that reaches the agents of other
// nodes by MPI, and so carries the epochs of programs that live (carrier/carried_node.h).
#include <mpi.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <utility>

#include "agent_run.h"
#include "base/log.h"
#include "carrier/agent_world.h"
#include "text.h"
#include "tier_settings.h"
#include "transport/mpi_library.h"
#include "transport/mpi_transport.h"

namespace tailrace::internal::tool {

Exit report(const Status& failure) {
    std::fprintf(stderr, "tailrace: %s\n", printable(failure.message()).c_str());
    return failure.code() == Code::invalid_argument ? exit_usage : exit_failed;
}

namespace {

// Agents that have ended wait for the others without taking a core, which MPI_Finalize would.
Exit serve(const AgentRun& options) {
    if (const auto alone = suspected_singleton(MPI_COMM_WORLD); !alone.empty())
        log(LogLevel::warning, "{}", alone);
    auto transport = make_mpi_transport(MPI_COMM_WORLD);
    if (!transport.ok()) return report(transport.status());
    const std::shared_ptr<Transport> shared = std::move(*transport);
    const auto config = tier_settings(options.local_dir);
    if (const Status all = agree(*shared, config.status()); !all.ok()) return report(all);
    const auto world = AgentWorld::create(shared);
    if (!world.ok()) return report(world.status());
    bool begun = false;
    const auto exit = run_agent(options, *config, *world, [&](const Status& mine) {
        const Status all = agree(*shared, mine);
        begun = all.ok();
        return all;
    });
    if (begun) (*world)->wait_for_all_agents();
    return exit;
}

}  // namespace

}  // namespace tailrace::internal::tool

int main(int argc, char** argv) {
    using namespace tailrace::internal::tool;
    AgentRun options;
    CLI::App program("An agent process that reaches others by MPI; started by `tailrace agent --mpi`");
    program.add_option("--local-dir", options.local_dir, "The node-local directory");
    program.add_option("--idle-exit", options.idle_exit, "End after that long without work");
    program.add_option("--grace", options.grace, "How long to go on when told to end");
    program.add_option("--for-lost", options.for_lost, "When a node is taken for lost");
    CLI11_PARSE(program, argc, argv);
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    const int exit = serve(options);
    MPI_Finalize();
    return exit;
}
