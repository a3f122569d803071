#include "base/status.h"

#include <cerrno>
#include <system_error>

namespace tailrace::internal {

std::string_view code_name(Code code) {
    switch (code) {
        case Code::ok:
            return "ok";
        case Code::invalid_argument:
            return "invalid argument";
        case Code::not_found:
            return "not found";
        case Code::already_exists:
            return "already exists";
        case Code::no_space:
            return "no space";
        case Code::io_error:
            return "I/O error";
        case Code::corrupt:
            return "corrupt";
        case Code::unsupported:
            return "unsupported";
        case Code::busy:
            return "busy";
        case Code::failed_state:
            return "wrong state";
        case Code::out_of_memory:
            return "out of memory";
        case Code::timeout:
            return "timeout";
        case Code::transport:
            return "transport";
        case Code::aborted:
            return "aborted";
    }
    return "unknown code";
}

Status Status::with_context(std::string_view context) const {
    if (ok()) return *this;
    return Status(code_, std::string(context) + ": " + sentence_);
}

std::string Status::to_string() const {
    if (ok()) return "ok";
    return std::string(code_name(code_)) + ": " + sentence_;
}

namespace {

Code code_of_errno(int error) {
    switch (error) {
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return Code::no_space;
        case ENOENT:
            return Code::not_found;
        case EEXIST:
            return Code::already_exists;
        case EINVAL:
        case ENAMETOOLONG:
        case ENOTDIR:
        case EISDIR:
            return Code::invalid_argument;
        case EOPNOTSUPP:
        case ENOSYS:
            return Code::unsupported;
        case ENOMEM:
            return Code::out_of_memory;
        case EBUSY:
        case EAGAIN:
            return Code::busy;
        default:
            return Code::io_error;
    }
}

}  // namespace

Status errno_status(int error, std::string_view attempted) {
    std::string sentence(attempted);
    sentence += ": ";
    sentence += std::generic_category().message(error);
    return Status(code_of_errno(error), std::move(sentence));
}

}  // namespace tailrace::internal
