#include "base/invariant.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <string_view>

#include "base/caught.h"
#include "base/log.h"

namespace tailrace::internal {

namespace {

// Threads may overtake each other between the members of a step. A line that mixes two steps does
// no harm, because people read it after the fact.
struct Step {
    std::atomic<const char*> what{nullptr};
    std::atomic<uint64_t> a{0}, b{0};
};
std::array<Step, 32> steps;
std::atomic<uint64_t> steps_taken{0};

void (*handler)(const std::string& sentence) = nullptr;

std::string reported(const char* condition, const char* file, int line) {
    std::string_view name(file);
    if (const auto source = name.rfind("src/"); source != std::string_view::npos)
        name = name.substr(source + 4);
    auto sentence =
        fmt::format("`{}` does not hold ({}:{}). Please report it with the preceding lines of the log",
                    condition, name, line);
    log(LogLevel::error, "an internal error of tailrace: {}. The last steps of this process:{}", sentence,
        last_steps());
    if (handler != nullptr) handler(sentence);
    return sentence;
}

}  // namespace

void note_step(const char* what, uint64_t a, uint64_t b) noexcept {
    Step& step = steps[steps_taken.fetch_add(1, std::memory_order_relaxed) % steps.size()];
    step.a.store(a, std::memory_order_relaxed);
    step.b.store(b, std::memory_order_relaxed);
    step.what.store(what, std::memory_order_relaxed);
}

std::string last_steps() {
    std::string lines;
    const uint64_t taken = steps_taken.load();
    for (uint64_t number = taken > steps.size() ? taken - steps.size() : 0; number < taken; ++number) {
        const Step& step = steps[number % steps.size()];
        if (const char* what = step.what.load())
            lines += fmt::format("\n  {} {} {}", what, step.a.load(), step.b.load());
    }
    return lines;
}

void on_broken_invariant(void (*replacement)(const std::string& sentence)) {
    handler = replacement;
}

void broken_invariant(const char* condition, const char* file, int line) {
    throw BrokenInvariant(reported(condition, file, line));
}

bool report_broken_invariant(const char* condition, const char* file, int line) noexcept {
    (void)catching([&] { (void)reported(condition, file, line); });
    return false;
}

}  // namespace tailrace::internal
