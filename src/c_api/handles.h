// HandleTable: the pointers given out by the C interface that are alive.
//
// A C program may pass a session that it has closed. Looking the pointer up before touching its
// target turns that into an error instead of a crash. (It cannot if the address was given out again
// meanwhile.) Thread-safe.
#pragma once

#include <memory>
#include <unordered_map>

#include "threads/mutex.h"

namespace tailrace::internal {

template <class Object>
class HandleTable {
  public:
    // The program's table. It is never destroyed: a program may exit with sessions open, and
    // closing them in a destructor would wait for ranks that are gone.
    static HandleTable& instance() {
        static HandleTable& table = *new HandleTable;
        return table;
    }

    Object* add(std::shared_ptr<Object> object) {
        MutexLock lock(mutex_);
        Object* handle = object.get();
        alive_.emplace(handle, std::move(object));
        return handle;
    }

    // Null if the handle is not alive.
    std::shared_ptr<Object> find(const Object* handle) const {
        MutexLock lock(mutex_);
        auto found = alive_.find(handle);
        return found == alive_.end() ? nullptr : found->second;
    }

    // Takes the handle out. The caller that gets the object must end it.
    std::shared_ptr<Object> take(const Object* handle) {
        MutexLock lock(mutex_);
        auto found = alive_.find(handle);
        if (found == alive_.end()) return nullptr;
        std::shared_ptr<Object> object = std::move(found->second);
        alive_.erase(found);
        return object;
    }

  private:
    mutable Mutex mutex_;
    std::unordered_map<const Object*, std::shared_ptr<Object>> alive_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
