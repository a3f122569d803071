#include "base/caught.h"

#include <new>
#include <stdexcept>
#include <string>

namespace tailrace::internal {

Status caught_status() noexcept {
    // The sentences about memory fit into std::string itself, because there may be none to say
    // more. So a copy of such a status never fails.
    try {
        try {
            throw;
        } catch (const std::bad_alloc&) {
            return Status(Code::out_of_memory, "no memory left");
        } catch (const std::length_error&) {  // more than a container can ever hold
            return Status(Code::out_of_memory, "no memory left");
        } catch (const std::exception& error) {
            return Status(Code::failed_state, std::string("an internal error of tailrace: ") + error.what());
        } catch (...) {
            return Status(Code::failed_state, "an internal error of tailrace");
        }
    } catch (...) {
        return Status(Code::out_of_memory, "no memory left");
    }
}

}  // namespace tailrace::internal
