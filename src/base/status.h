// Status and Result<T>: how every call of tailrace reports failure.
//
// A failure is a value: a code (what kind) and a sentence (what was attempted, on which path,
// offset and length, and what is left intact). Nothing in the library throws, exits or prints on an
// expected failure. Values are immutable after construction and may be passed between threads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/invariant.h"
#include "tailrace_status.h"

namespace tailrace::internal {

enum class Code : int {
    ok = TAILRACE_OK,
    invalid_argument = TAILRACE_INVALID_ARGUMENT,
    not_found = TAILRACE_NOT_FOUND,
    already_exists = TAILRACE_ALREADY_EXISTS,
    no_space = TAILRACE_NO_SPACE,
    io_error = TAILRACE_IO_ERROR,
    corrupt = TAILRACE_CORRUPT,
    unsupported = TAILRACE_UNSUPPORTED,
    busy = TAILRACE_BUSY,
    failed_state = TAILRACE_FAILED_STATE,
    out_of_memory = TAILRACE_OUT_OF_MEMORY,
    timeout = TAILRACE_TIMEOUT,
    transport = TAILRACE_TRANSPORT,
    aborted = TAILRACE_ABORTED,
};

// The code's name as users see it, for example "no space".
std::string_view code_name(Code code);

class [[nodiscard]] Status {
  public:
    Status() = default;  // ok
    Status(Code code, std::string sentence) : code_(code), sentence_(std::move(sentence)) {
        INVARIANT(code != Code::ok);
    }

    bool ok() const { return code_ == Code::ok; }
    explicit operator bool() const { return ok(); }
    Code code() const { return code_; }
    const std::string& message() const { return sentence_; }

    // The same failure with more context: "context: sentence". An ok status stays ok.
    Status with_context(std::string_view context) const;

    // "no space: writing 4096 bytes at ..." or "ok".
    std::string to_string() const;

  private:
    Code code_ = Code::ok;
    std::string sentence_;
};

// A value or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
  public:
    Result(T value) : content_(std::in_place_index<1>, std::move(value)) {}
    Result(Status status) : content_(std::in_place_index<0>, std::move(status)) {
        INVARIANT(!std::get<0>(content_).ok());
    }

    bool ok() const { return content_.index() == 1; }
    explicit operator bool() const { return ok(); }

    // The failure; ok if there is a value.
    Status status() const { return ok() ? Status() : std::get<0>(content_); }

    T& value() & {
        INVARIANT(ok());
        return std::get<1>(content_);
    }
    const T& value() const& {
        INVARIANT(ok());
        return std::get<1>(content_);
    }
    // Returns by value, so that a call's result may be used directly in the head of a loop.
    T value() && {
        INVARIANT(ok());
        return std::get<1>(std::move(content_));
    }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T operator*() && { return std::move(*this).value(); }

  private:
    std::variant<Status, T> content_;
};

// The status of a failed system call. It chooses the code from errno (ENOSPC, EDQUOT -> no_space,
// ENOENT -> not_found, EEXIST -> already_exists, EINVAL -> invalid_argument, ...) and appends
// errno's text.
Status errno_status(int error, std::string_view attempted);

}  // namespace tailrace::internal

#define TAILRACE_CONCAT_(a, b) a##b
#define TAILRACE_CONCAT(a, b) TAILRACE_CONCAT_(a, b)

// Returns the failure from the function, if there is one.
#define TAILRACE_TRY(expression)                                                                         \
    do {                                                                                                 \
        if (::tailrace::internal::Status try_status = (expression); !try_status.ok()) return try_status; \
    } while (false)

// Declares `variable` with the value, or returns the failure from the function:
//     TAILRACE_ASSIGN(auto file, storage.open(path, options));
#define TAILRACE_ASSIGN(declaration, expression)                \
    auto TAILRACE_CONCAT(try_result_, __LINE__) = (expression); \
    if (!TAILRACE_CONCAT(try_result_, __LINE__).ok())           \
        return TAILRACE_CONCAT(try_result_, __LINE__).status(); \
    declaration = std::move(TAILRACE_CONCAT(try_result_, __LINE__)).value()
