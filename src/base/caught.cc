#include "base/caught.h"

#include <new>
#include <string>

namespace tailrace::internal {

Status caught_status() noexcept {
    // These sentences fit into std::string itself, because there may be no memory to say more.
    try {
        try {
            throw;
        } catch (const std::bad_alloc&) {
            return Status(Code::out_of_memory, "memory could not be had");
        } catch (const std::exception& error) {
            return Status(Code::failed_state, std::string("an internal error of tailrace: ") + error.what());
        } catch (...) {
            return Status(Code::failed_state, "an internal error of tailrace");
        }
    } catch (...) {
        return Status(Code::out_of_memory, "no memory");
    }
}

}  // namespace tailrace::internal
