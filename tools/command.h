// What the subcommands share: how each one joins the program, and what its exit status means.
//
// A subcommand is one file with one function add_NAME(), which declares its options on a CLI::App
// and returns the function that runs it. Results go to stdout (a table, or one JSON document with
// --json). Everything else, such as progress and complaints, goes to stderr. Some subcommands are
// Python programs: see python_program.h.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <memory>

#include "base/status.h"
#include "storage/storage.h"

namespace tailrace::internal::tool {

// The manual page lists these, too.
enum Exit : int {
    exit_ok = 0,
    exit_damaged = 1,        // something that was looked at is damaged or incomplete
    exit_usage = 2,          // the command line makes no sense
    exit_not_found = 3,      // no such directory, epoch, rank, region, array
    exit_failed = 4,         // the system, or another session, refused an operation
    exit_waiting = 5,        // other nodes have to do their share first
    exit_interrupted = 130,  // by Ctrl-C, after cleaning up
};

// Prints the sentence to stderr and chooses the exit status. With --json, a command that ends this
// way without a document of its own prints {"ok": false, "error": the sentence}.
Exit report(const Status& failure);

// Runs after parsing.
using Command = std::function<Exit(Storage&)>;

Command add_ls(CLI::App& program);
Command add_show(CLI::App& program);
Command add_verify(CLI::App& program);
Command add_extract(CLI::App& program);
Command add_prune(CLI::App& program);
Command add_halt(CLI::App& program);
Command add_drain(CLI::App& program);
Command add_config(CLI::App& program);
Command add_bench(CLI::App& program);
Command add_tune(CLI::App& program);
Command add_agent(CLI::App& program);

}  // namespace tailrace::internal::tool
