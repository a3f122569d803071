#include "config/signal_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>

#include "base/nearest.h"
#include "base/text.h"

namespace tailrace::internal {

namespace {

struct Named {
    std::string_view name;
    int number;
};
constexpr std::array<Named, 7> signals = {{{"TERM", SIGTERM},
                                           {"INT", SIGINT},
                                           {"HUP", SIGHUP},
                                           {"QUIT", SIGQUIT},
                                           {"USR1", SIGUSR1},
                                           {"USR2", SIGUSR2},
                                           {"XCPU", SIGXCPU}}};
constexpr std::string_view separators = " ,\t";

Result<int> parse_signal(std::string_view written) {
    std::string name(written);
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (name.starts_with("SIG")) name = name.substr(3);
    std::vector<std::string_view> names;
    for (const Named& signal : signals) {
        if (signal.name == name) return signal.number;
        names.push_back(signal.name);
    }
    return Status(Code::invalid_argument,
                  fmt::format("\"{}\" is not a signal that asks a program to stop: {} are; the nearest is "
                              "\"{}\"",
                              shortened(written), fmt::join(names, ", "), nearest_name(name, names)));
}

}  // namespace

Result<std::vector<int>> parse_signals(std::string_view text) {
    std::vector<int> numbers;
    for (size_t at = text.find_first_not_of(separators); at != std::string_view::npos;) {
        const size_t end = std::min(text.find_first_of(separators, at), text.size());
        TAILRACE_ASSIGN(const int number, parse_signal(text.substr(at, end - at)));
        if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
        at = text.find_first_not_of(separators, end);
    }
    return numbers;
}

std::string signal_text(int number) {
    for (const Named& signal : signals)
        if (signal.number == number) return std::string(signal.name);
    return fmt::format("signal {}", number);
}

}  // namespace tailrace::internal
