// The halt file: how somebody outside a job asks it to stop (`tailrace halt`). It lies in the shared
// directory, which one session at a time may use, and holds for that session or the next one.
//
// It is text, so that people can read it:
//
//     tailrace halt 1
//     after 3                (or: now; or: at 1795543200, in seconds since 1970)
//     id 8b1f0e6a33c2d901    (which request it is)
//     by anna@login2         (for the reason that programs get)
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

enum class HaltKind { now, at, after };

struct Halt {
    HaltKind kind = HaltKind::now;
    int64_t at_unix = 0;       // of `at`
    uint64_t after_saves = 0;  // of `after`: counted from when the session has found the file
    uint64_t id = 0;           // a random number
    std::string by = {};
    friend bool operator==(const Halt&, const Halt&) = default;
};

std::string encode(const Halt& halt);
// invalid_argument says what is wrong.
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

// "now", "after 3 saves", "at 2026-11-24T17:00:00Z".
std::string when_text(const Halt& halt);

}  // namespace tailrace::internal
