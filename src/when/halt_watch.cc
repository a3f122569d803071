#include "when/halt_watch.h"

#include <chrono>

#include "base/caught.h"
#include "base/log.h"
#include "threads/executor.h"

namespace tailrace::internal {

namespace {

constexpr std::chrono::seconds between_looks(1);

void log_thrown() {
    log(LogLevel::warning, "looking for a halt file: {}", caught_status().message());
}

}  // namespace

std::optional<Halt> HaltWatch::ask(Priority priority) {
    MutexLock lock(mutex_);
    const auto now = SteadyClock::now();
    if (!begun_) {
        looking_.begin("tailrace halt", priority, log_thrown);
        begun_ = true;
    }
    if (!under_way_ && (!looked_ || now - *looked_ >= between_looks)) {
        under_way_ = true;
        looked_ = now;
        looking_.add([this] { look(); });
    }
    return found_;
}

void HaltWatch::look() {
    Result<std::optional<Halt>> read = Status(Code::out_of_memory, "");
    const Status thrown = catching([&] { read = read_halt(storage_, directory_); });
    MutexLock lock(mutex_);
    under_way_ = false;
    const Status failed = thrown.ok() ? read.status() : thrown;
    found_ = failed.ok() ? *read : std::nullopt;
    if (!failed.ok() && failed.message() != complaint_) {
        complaint_ = failed.message();
        log(LogLevel::warning, "a halt file is not obeyed: {}", failed.message());
    }
}

void HaltWatch::obeyed(const Halt& halt) {
    looking_.add([this, halt] {
        if (const Status removed = remove_this_halt(storage_, directory_, halt); !removed.ok())
            log(LogLevel::warning, "a halt file was obeyed, but also holds for the next run: {}",
                removed.message());
    });
}

}  // namespace tailrace::internal
