#include "aggregate/graveyard.h"

#include "threads/mutex.h"

namespace tailrace::internal {

void keep_until_exit(std::list<std::shared_ptr<void>> memory) {
    struct Kept {
        Mutex mutex;
        std::list<std::shared_ptr<void>> memory GUARDED_BY(mutex);
    };
    static auto& kept = *new Kept;
    MutexLock lock(kept.mutex);
    kept.memory.splice(kept.memory.end(), memory);
}

}  // namespace tailrace::internal
