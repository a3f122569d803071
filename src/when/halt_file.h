// The halt file: how somebody outside a job asks it to stop (`tailrace halt`). It lies in the shared
// directory, which one session at a time may use, and holds for that session or the next one.
//
// It is text, so that people can read it:
//
//     tailrace halt 1
//     after 3                (a condition: the session stops when one of its conditions holds)
//     id 8b1f0e6a33c2d901    (which request it is)
//     by anna@login2         (for the reason that programs get)
//
// The conditions are: now; after N saves; at a time; before a time, early enough for a last save. Times are
// seconds since 1970. `stop_before N` is how many seconds the last save gets, before that time and before
// the end of the job.
//
// Its name is none that an epoch's file can have. It is believed only if it belongs to the user of
// the session, nobody else may write to it, it has one name, and it is a file, not a link or a pipe.
//
// Encoding and decoding are pure, and the decoder treats every byte as hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "storage/storage.h"

namespace tailrace::internal {

inline constexpr std::string_view halt_file_name = "tailrace.halt";

struct Halt {
    bool now = false;
    std::optional<uint64_t> after_saves = {};  // counted from when the session has found the file
    std::optional<int64_t> at_unix = {};
    std::optional<int64_t> before_unix = {};
    std::optional<uint64_t> stop_before_seconds = {};  // in place of the session's setting
    uint64_t id = 0;                                   // a random number
    std::string by = {};
    friend bool operator==(const Halt&, const Halt&) = default;
};

// Whether it asks for anything.
bool has_condition(const Halt& halt);
std::string encode(const Halt& halt);
// invalid_argument says what is wrong. An order has a condition.
Result<Halt> decode_halt(std::string_view text);

// The order in the directory; nothing if there is none.
Result<std::optional<Halt>> read_halt(Storage& storage, const std::string& directory);
// Puts the order into the directory, whole or not at all, in place of the one that is there.
Status write_halt(Storage& storage, const std::string& directory, const Halt& halt);
// Removes the file, whatever it holds. not_found if there is none.
Status remove_halt(Storage& storage, const std::string& directory);
// Removes the file if it holds this order, which has been obeyed. One that takes its place meanwhile stays.
Status remove_this_halt(Storage& storage, const std::string& directory, const Halt& halt);
// Puts in order what processes have left that died in write_halt or in remove_this_halt: an order that was
// obeyed is removed, one that was not is found again. Who calls has the directory's lock.
Status clear_halt_remains(Storage& storage, const std::string& directory);

// "now", "after 3 saves or before 2026-11-24T17:00:00Z, with 10min for the last save before
// an end", "10min before the end of the job".
std::string when_text(const Halt& halt);

}  // namespace tailrace::internal
