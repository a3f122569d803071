#include "simulation/virtual_executor.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace tailrace::internal::testing_support {

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t stack_bytes = size_t{2} << 20;
#else
constexpr size_t stack_bytes = size_t{256} << 10;
#endif
constexpr auto at_once = std::chrono::microseconds(10);
constexpr auto step_time = std::chrono::nanoseconds(100);  // time goes on, also for who only looks at it

// Stacks are used again: a history has thousands of tasks. The lowest page of each cannot be touched.
class Stacks {
  public:
    std::byte* take() {
        if (!free_.empty()) {
            std::byte* stack = free_.back();
            free_.pop_back();
            return stack;
        }
        void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_NONE) != 0) std::abort();
        return static_cast<std::byte*>(memory);
    }
    void give_back(std::byte* stack) { free_.push_back(stack); }

  private:
    std::vector<std::byte*> free_;
};

Stacks& stacks() {
    static Stacks& all = *new Stacks;
    return all;
}

// What the C++ runtime keeps for each thread about exceptions that are being handled. Tasks share a thread,
// so each has its own copy. (Itanium C++ ABI, 2.2.2.)
struct CaughtExceptions {
    void* caught = nullptr;
    unsigned int uncaught = 0;
};

uint64_t mixed(uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

}  // namespace

uint64_t Dice::next() {
    state_ += 0x9E3779B97F4A7C15u;
    return mixed(state_);
}

struct VirtualExecutor::Context {
    Task number = 0;
    std::string name;
    std::function<void()> body;
    std::byte* stack = nullptr;
    ucontext_t machine{};
    CaughtExceptions exceptions;
    bool ended = false;
    const void* place = nullptr;  // where it waits
    std::optional<std::multimap<SteadyClock::time_point, Context*>::iterator> alarm;
    // For AddressSanitizer; the caller's stack is known when it was left for the first time.
    void* fake_stack = nullptr;
    const void* stack_bottom = nullptr;
    size_t stack_size = 0;
};

VirtualExecutor::VirtualExecutor(uint64_t seed, Options options)
    : dice_(seed),
      options_(std::move(options)),
      now_(std::chrono::hours(1000)),
      day_(std::chrono::hours(24 * 365 * 50)),
      caller_(std::make_unique<Context>()) {}

VirtualExecutor::~VirtualExecutor() = default;

void VirtualExecutor::run(std::function<void()> body) {
    install(this);
    running_ = caller_.get();
    const Task first = start("program", std::move(body));
    join(first);
    // What is left ends by itself, or stands still.
    while (!tasks_.empty()) join(tasks_.begin()->first);
    running_ = nullptr;
    install(nullptr);
}

SteadyClock::time_point VirtualExecutor::now() {
    if (!checking_) now_ += step_time;
    return now_;
}

std::chrono::system_clock::time_point VirtualExecutor::time_of_day() {
    const auto since = now().time_since_epoch();
    return day_ + std::chrono::duration_cast<std::chrono::system_clock::duration>(since);
}

void VirtualExecutor::note(std::string_view what, uint64_t a, uint64_t b) {
    uint64_t hash = trace_;
    for (const char c : what) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    trace_ = mixed(mixed(hash + a) + b);
}

void VirtualExecutor::enter() {
    auto* self = static_cast<VirtualExecutor*>(Executor::installed());
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (self->caller_->stack_bottom == nullptr) {
        self->caller_->stack_bottom = bottom;
        self->caller_->stack_size = size;
    }
#endif
    Context& context = *self->running_;
    context.body();
    context.body = nullptr;
    context.ended = true;
    ++self->ended_;
    self->tasks_.erase(context.number);
    OwnWork::depth_ = 0;
    self->wake(&context, true);
    self->switch_away();
}

Executor::Task VirtualExecutor::start(const std::string& name, std::function<void()> body) {
    const OwnWork own;
    auto made = std::make_unique<Context>();
    Context& context = *made;
    context.number = ++started_;
    context.name = name;
    context.body = std::move(body);
    context.stack_bottom = context.stack = stacks().take();
    context.stack_size = stack_bytes;
    getcontext(&context.machine);
    context.machine.uc_stack.ss_sp = context.stack;
    context.machine.uc_stack.ss_size = stack_bytes;
    context.machine.uc_link = nullptr;
    makecontext(&context.machine, &VirtualExecutor::enter, 0);
    tasks_[context.number] = &context;
    contexts_.push_back(std::move(made));
    note("start", context.number);
    make_ready(context);
    return context.number;
}

void VirtualExecutor::join(Task task) {
    for (auto found = tasks_.find(task); found != tasks_.end(); found = tasks_.find(task))
        wait(found->second, std::nullopt);
}

VirtualExecutor::Context& VirtualExecutor::make_ready(Context& context) {
    if (context.place != nullptr) {
        auto& there = waiting_[context.place];
        std::erase(there, &context);
        if (there.empty()) waiting_.erase(context.place);
        context.place = nullptr;
    }
    if (context.alarm) alarms_.erase(*context.alarm);
    context.alarm.reset();
    ready_.push_back(&context);
    return context;
}

void VirtualExecutor::pause() {
    const OwnWork own;
    if (checking_ || options_.pause <= 0 || ready_.empty() || !dice_.chance(options_.pause)) return;
    ready_.push_back(running_);
    switch_away();
}

void VirtualExecutor::wait(const void* place, std::optional<SteadyClock::time_point> until) {
    const OwnWork own;
    if (checking_) stand_still("cannot go on: a check waits");
    running_->place = place;
    waiting_[place].push_back(running_);
    if (until) running_->alarm = alarms_.emplace(*until, running_);
    switch_away();
}

void VirtualExecutor::wake(const void* place, bool all) {
    const OwnWork own;
    const auto found = waiting_.find(place);
    if (found == waiting_.end()) return;
    if (!all) {
        make_ready(*found->second[dice_.below(found->second.size())]);
        return;
    }
    const auto woken = found->second;
    for (Context* context : woken) make_ready(*context);
}

void VirtualExecutor::switch_away() {
    if (check_) {
        checking_ = true;
        check_();
        checking_ = false;
    }
    if (++steps_ > options_.most_steps) stand_still("goes round in circles");
    const auto before_step = now_;
    now_ += step_time;
    if (ready_.empty() && alarms_.empty()) stand_still("stands still: everybody waits");
    if (ready_.empty()) now_ = std::max(now_, alarms_.begin()->first);
    while (!alarms_.empty() && alarms_.begin()->first <= now_) make_ready(*alarms_.begin()->second);

    const size_t chosen = dice_.below(ready_.size());
    Context* next = ready_[chosen];
    ready_[chosen] = ready_.back();
    ready_.pop_back();
    note("step", next->number);
    in_a_row_ = next == running_ && now_ - before_step < at_once ? in_a_row_ + 1 : 0;
    if (in_a_row_ > options_.most_in_a_row) stand_still("has a task that spins");
    if (next == running_) return;

    Context& before = *running_;
    const int own_work = std::exchange(OwnWork::depth_, 0);
    auto* caught = reinterpret_cast<CaughtExceptions*>(abi::__cxa_get_globals());
    before.exceptions = *caught;
    *caught = next->exceptions;
    running_ = next;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(before.ended ? nullptr : &before.fake_stack, next->stack_bottom,
                                   next->stack_size);
#endif
    swapcontext(&before.machine, &next->machine);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(running_->fake_stack, nullptr, nullptr);
#endif
    OwnWork::depth_ = own_work;
    if (ended_ == 0) return;
    ended_ = 0;
    std::erase_if(contexts_, [&](const auto& context) {
        if (!context->ended || context.get() == running_) return false;
        stacks().give_back(context->stack);
        return true;
    });
}

void VirtualExecutor::stand_still(const char* why) {
    std::fprintf(stderr, "The simulated job %s, after %llu steps. %s\nIts tasks:\n", why,
                 static_cast<unsigned long long>(steps_), options_.story.c_str());
    for (const auto& context : contexts_)
        if (!context->ended)
            std::fprintf(stderr, "  %llu %s%s\n", static_cast<unsigned long long>(context->number),
                         context->name.c_str(), context.get() == running_ ? " (running)" : "");
    std::fflush(stderr);
    std::abort();
}

}  // namespace tailrace::internal::testing_support
