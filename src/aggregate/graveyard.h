// Memory that a transport may still write to when its owner ends.
#pragma once

#include <list>
#include <memory>

namespace tailrace::internal {

// Keeps it until the process ends. Needs no memory itself, since destructors call it. Any thread.
void keep_until_exit(std::list<std::shared_ptr<void>> memory);

}  // namespace tailrace::internal
