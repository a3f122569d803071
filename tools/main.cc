// tailrace: lists, shows, verifies, extracts and prunes checkpoints, asks jobs to stop, and measures file
// systems. See docs/man/tailrace.1.
#include <fmt/format.h>
#include <tailrace.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest.h"
#include "command.h"
#include "python_program.h"
#include "text.h"

namespace tailrace::internal::tool {

namespace {

constexpr const char* examples = R"(Examples:
  tailrace ls /scratch/run7                      list the epochs, and say which are complete
  tailrace show /scratch/run7 newest             show the contents of the newest epoch
  tailrace verify /scratch/run7                  read everything, and check every checksum
  tailrace extract /scratch/run7 1200 --array density --box 0:64,0:64,32:33 -o slice.npy
  tailrace prune /scratch/run7 --keep 5          list the epochs to remove; --yes removes them
  tailrace halt /scratch/run7 --at 18:00         ask the job to save once more at 18:00, and stop
  tailrace drain --wait 5min                     finish the captured epochs of a program that has died
  tailrace config > tailrace.toml                write a configuration file to start from
  tailrace bench /scratch/me --writers 1,4,8     measure how fast one leader writes there
  tailrace tune /scratch/me --time 5min          find settings for it, and write tailrace.toml
  tailrace convert ckpt/step-100 model.safetensors   convert from one format to another
  tailrace run -- mpiexec -n 16 ./simulation     run it, and start it again when it dies
  tailrace profile -- python train.py            show what its checkpoints do to the file system
  tailrace report tailrace-bench.json /scratch/run7   draw results and records as an HTML page

Exit status: 0 success; 1 something is damaged or incomplete; 2 wrong usage; 3 not found;
4 the system or a running session refused; 5 other nodes are needed; 130 interrupted.
profile and run exit with the status of their command.
`tailrace COMMAND --help` lists the options of a command.)";

std::string last_reported;

}  // namespace

Exit report(const Status& failure) {
    last_reported = failure.message();
    std::fprintf(stderr, "tailrace: %s\n", printable(failure.message()).c_str());
    switch (failure.code()) {
        case Code::ok:
            return exit_ok;
        case Code::corrupt:
            return exit_damaged;
        case Code::invalid_argument:
        case Code::already_exists:
            return exit_usage;
        case Code::not_found:
            return exit_not_found;
        default:
            return exit_failed;
    }
}

namespace {

// Nothing takes an empty value. It is most often a variable of a script that is not set.
Status check_no_value_is_empty(const CLI::App& command) {
    for (const CLI::Option* option : command.get_options())
        for (const std::string& value : option->results())
            if (value.empty())
                return Status(Code::invalid_argument,
                              fmt::format("{} \"\" is empty: {}give it a value ({})", option->get_name(),
                                          option->get_required() ? "" : "leave it out, or ",
                                          option->get_description()));
    return Status();
}

// Names the nearest of the right names, unless none is near.
std::string suggestion(std::string_view wrong, const std::vector<std::string>& names) {
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string_view nearest = nearest_name(wrong, views);
    return is_near(wrong, nearest) ? fmt::format("; the nearest is '{}'", nearest) : "";
}

// What is wrong with a command line, and where the right ones are explained.
std::string usage_message(const CLI::App* program, const CLI::Error& error) {
    const std::vector<CLI::App*> given = program->get_subcommands();
    const CLI::App& command = given.empty() ? *program : *given.front();
    std::string sentence = error.what();
    // "The following argument was not expected: --jason"
    const size_t at = sentence.find(": -");
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && at != std::string::npos) {
        std::vector<std::string> names;
        for (const CLI::Option* option : command.get_options())
            for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
        const std::string wrong = sentence.substr(at + 2, sentence.find_first_of(" =", at + 2) - at - 2);
        sentence = fmt::format("there is no option '{}'{}", wrong, suggestion(wrong, names));
    }
    const std::string help =
        given.empty() ? "tailrace --help" : fmt::format("tailrace {} --help", command.get_name());
    return fmt::format("tailrace: {}. {} lists all\n", printable(sentence), help);
}

int run(int argc, char** argv) {
    // "help" and "help COMMAND", as many programs with commands have them.
    if (argc > 1 && std::string_view(argv[1]) == "help") {
        static char option[] = "--help";
        std::array<char*, 3> asked{argv[0], argc > 2 ? argv[2] : option, option};
        return run(argc > 2 ? 3 : 2, asked.data());
    }
    CLI::App program(
        "Looks into directories of tailrace checkpoints, asks their jobs to stop, and measures file systems.",
        "tailrace");
    program.set_version_flag("--version", std::string("tailrace ") + std::to_string(TAILRACE_VERSION_MAJOR) +
                                              "." + std::to_string(TAILRACE_VERSION_MINOR) + "." +
                                              std::to_string(TAILRACE_VERSION_PATCH));
    program.require_subcommand(1);
    program.footer(examples);
    program.failure_message(usage_message);
    program.get_formatter()->column_width(34);

    std::vector<std::pair<CLI::App*, Command>> commands;
    for (auto add : {add_ls, add_show, add_verify, add_extract, add_prune, add_drain, add_agent, add_halt,
                     add_config, add_bench, add_tune}) {
        Command command = add(program);
        commands.emplace_back(program.get_subcommands({}).back(), std::move(command));
    }
    std::vector<std::string> names;
    for (const auto& [app, command] : commands) names.push_back(app->get_name());
    const std::string first = argc > 1 ? argv[1] : "-";
    for (const PythonProgram& python : python_programs()) {
        if (first == python.name) return become(python, {argv + 2, argv + argc});
        program.add_subcommand(python.name, python.about);
        names.push_back(python.name);
    }
    if (!first.starts_with('-') && std::find(names.begin(), names.end(), first) == names.end()) {
        std::fprintf(stderr, "tailrace: there is no command '%s'%s. tailrace --help lists all\n",
                     printable(first).c_str(), suggestion(first, names).c_str());
        return exit_usage;
    }
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return program.exit(error) == 0 ? exit_ok : exit_usage;
    }
    auto storage = make_system_storage({.engine = IoEngine::posix});
    if (!storage.ok()) return report(storage.status());
    for (const auto& [app, command] : commands)
        if (app->parsed()) {
            const Status given = check_no_value_is_empty(*app);
            const Exit exit = given.ok() ? command(**storage) : report(given);
            const CLI::Option* json = app->get_option_no_throw("--json");
            if (exit != exit_ok && json != nullptr && json->count() > 0 && !last_reported.empty() &&
                !printed_json())
                print_json({{"ok", false}, {"error", last_reported}});
            return exit;
        }
    return exit_usage;
}

}  // namespace

}  // namespace tailrace::internal::tool

int main(int argc, char** argv) {
    try {
        const int exit = tailrace::internal::tool::run(argc, argv);
        const auto printed = tailrace::internal::tool::finish_printing();
        return printed.ok() ? exit : tailrace::internal::tool::report(printed);
    } catch (const std::bad_alloc&) {
        std::fputs("tailrace: out of memory\n", stderr);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tailrace: %s\n", error.what());
    }
    return tailrace::internal::tool::exit_failed;
}
