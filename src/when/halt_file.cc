#include "when/halt_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "base/crc32c.h"
#include "base/text.h"
#include "base/time_text.h"
#include "threads/executor.h"

namespace tailrace::internal {

namespace {

constexpr std::string_view first_line = "tailrace halt 1";
constexpr size_t most_bytes = 4096;
constexpr size_t most_name_bytes = 256;
constexpr std::string_view obeyed_infix = ".obeyed.";
constexpr int most_tries = 3;
constexpr int64_t last_second = 253402300799;  // of the year 9999

template <class Number>
bool parse_number(std::string_view text, Number& number, int base = 10) {
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    return error == std::errc() && rest == text.data() + text.size();
}

// The line before `text`'s first line feed, which is taken from `text`; nothing if there is none.
std::optional<std::string_view> take_line(std::string_view& text) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const auto line = text.substr(0, end);
    text.remove_prefix(end + 1);
    return line;
}

// What follows `word` and a blank; nothing if the line begins otherwise.
std::optional<std::string_view> after_word(std::string_view line, std::string_view word) {
    if (!line.starts_with(word) || line.size() <= word.size() || line[word.size()] != ' ')
        return std::nullopt;
    return line.substr(word.size() + 1);
}

bool printable(std::string_view name) {
    return name.size() <= most_name_bytes &&
           std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

OpenOptions trusted(Access access) {
    OpenOptions options;
    options.access = access;
    options.own = true;
    options.sole_writer = true;
    return options;
}

Status wrong(std::string_view what) {
    return Status(Code::invalid_argument, fmt::format("it is no halt file: {}", what));
}

}  // namespace

bool has_condition(const Halt& halt) {
    return halt.now || halt.after_saves || halt.at_unix || halt.before_unix || halt.stop_before_seconds;
}

std::string encode(const Halt& halt) {
    std::string text(first_line);
    if (halt.now) text += "\nnow";
    if (halt.after_saves) text += fmt::format("\nafter {}", *halt.after_saves);
    if (halt.at_unix) text += fmt::format("\nat {}", *halt.at_unix);
    if (halt.before_unix) text += fmt::format("\nbefore {}", *halt.before_unix);
    if (halt.stop_before_seconds) text += fmt::format("\nstop_before {}", *halt.stop_before_seconds);
    text += fmt::format("\nid {:016x}\n", halt.id);
    if (!halt.by.empty()) {
        std::string by = halt.by.substr(0, most_name_bytes);
        std::replace_if(
            by.begin(), by.end(), [](char c) { return c <= ' ' || c >= '\x7f'; }, '_');
        text += fmt::format("by {}\n", by);
    }
    return text;
}

namespace {

bool parse_second(std::string_view text, std::optional<int64_t>& second) {
    return parse_number(text, second.emplace()) && *second >= 0 && *second <= last_second;
}

// Whether the line is a condition.
Result<bool> decode_condition(std::string_view line, Halt& halt) {
    if (line == "now") {
        halt.now = true;
    } else if (const auto at = after_word(line, "at")) {
        if (!parse_second(*at, halt.at_unix)) return wrong("'at' is not followed by a time");
    } else if (const auto before = after_word(line, "before")) {
        if (!parse_second(*before, halt.before_unix)) return wrong("'before' is not followed by a time");
    } else if (const auto after = after_word(line, "after")) {
        if (!parse_number(*after, halt.after_saves.emplace()))
            return wrong("'after' is not followed by a number");
    } else if (const auto stop_before = after_word(line, "stop_before")) {
        if (!parse_number(*stop_before, halt.stop_before_seconds.emplace()) ||
            *halt.stop_before_seconds > static_cast<uint64_t>(last_second))
            return wrong("'stop_before' is not followed by a number of seconds");
    } else {
        return false;
    }
    return true;
}

}  // namespace

Result<Halt> decode_halt(std::string_view text) {
    if (text.size() > most_bytes) return wrong("it is too long");
    if (take_line(text) != first_line) return wrong("its first line is another, or it is of a later version");
    Halt halt;
    while (const auto line = take_line(text)) {
        TAILRACE_ASSIGN(const bool is_condition, decode_condition(*line, halt));
        if (is_condition) continue;
        if (const auto id = after_word(*line, "id")) {
            if (!parse_number(*id, halt.id, 16)) return wrong("'id' is not followed by a number");
        } else if (const auto by = after_word(*line, "by")) {
            if (!printable(*by)) return wrong("'by' is not followed by a name");
            halt.by = *by;
        } else {
            return wrong("it has a line that is not known");
        }
    }
    if (!text.empty()) return wrong("its last line is cut off");
    if (!has_condition(halt)) return wrong("it does not say when");
    return halt;
}

namespace {

std::string path_in(const std::string& directory) {
    return join_path(directory, std::string(halt_file_name));
}

Result<std::optional<Halt>> read_file(Storage& storage, const std::string& path) {
    auto file = storage.open(path, trusted(Access::read));
    if (!file.ok() && file.status().code() == Code::not_found) return std::optional<Halt>();
    TAILRACE_TRY(file.status());
    std::array<std::byte, most_bytes + 1> bytes;
    TAILRACE_ASSIGN(const size_t count, (*file)->read_at(bytes, 0));
    auto halt = decode_halt({reinterpret_cast<const char*>(bytes.data()), count});
    if (!halt.ok()) return halt.status().with_context(fmt::format("'{}'", path));
    return std::optional<Halt>(std::move(*halt));
}

}  // namespace

Result<std::optional<Halt>> read_halt(Storage& storage, const std::string& directory) {
    return read_file(storage, path_in(directory));
}

Status write_halt(Storage& storage, const std::string& directory, const Halt& halt) {
    const std::string path = path_in(directory);
    const std::string text = encode(halt);
    Status written;
    for (int tries = 0; tries < most_tries; ++tries) {
        const std::string unfinished = fmt::format("{}.{:016x}", path, random_number());
        written = [&]() -> Status {
            TAILRACE_ASSIGN(const auto file, storage.open(unfinished, trusted(Access::create_new)));
            TAILRACE_TRY(file->write_at(std::as_bytes(std::span(text)), 0));
            TAILRACE_TRY(file->sync());
            TAILRACE_TRY(file->close());
            return storage.rename(unfinished, path);
        }();
        if (written.ok()) return written;
        // A session that opens may have taken it for a dead writer's.
        const Status removed = storage.remove(unfinished);
        if (written.code() != Code::not_found || removed.code() != Code::not_found) return written;
    }
    return written;
}

Status remove_halt(Storage& storage, const std::string& directory) {
    return storage.remove(path_in(directory));
}

// A removal has two steps, and whoever dies between them leaves a file whose name says what it is:
//   1. The file is renamed to tailrace.halt.obeyed.CHECKSUM.RANDOM, with the checksum of the order that was
//      obeyed.
//   2. If it holds that order, it is removed. Otherwise another order came just before step 1. It gets its
//      name back, unless a newer one has that name by now.
namespace {

std::string checksum_of(const Halt& halt) {
    const std::string text = encode(halt);
    return fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))));
}

Status finish_removal(Storage& storage, const std::string& directory, const std::string& taken,
                      std::string_view obeyed) {
    const auto held = read_file(storage, taken);
    // What is no order would not be obeyed. What cannot be read now may be one.
    if (!held.ok() && held.status().code() != Code::invalid_argument) return held.status();
    if (held.ok() && *held && checksum_of(**held) != obeyed) {
        TAILRACE_ASSIGN(const auto newest, read_halt(storage, directory));
        if (!newest) return storage.rename(taken, path_in(directory));
    }
    return storage.remove(taken);
}

bool is_hex(std::string_view text, size_t digits) {
    return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace

Status remove_this_halt(Storage& storage, const std::string& directory, const Halt& halt) {
    const auto found = read_halt(storage, directory);
    if (!found.ok() || *found != halt) return {};
    const auto obeyed = checksum_of(halt);
    const std::string path = path_in(directory);
    const std::string taken = fmt::format("{}{}{}.{:016x}", path, obeyed_infix, obeyed, random_number());
    TAILRACE_TRY(storage.rename(path, taken));
    return finish_removal(storage, directory, taken, obeyed);
}

Status clear_halt_remains(Storage& storage, const std::string& directory) {
    TAILRACE_ASSIGN(const auto entries, storage.list(directory));
    Status first_failure;
    const auto keep = [&](const Status& status) {
        if (!status.ok() && status.code() != Code::not_found && first_failure.ok()) first_failure = status;
    };
    for (const auto& entry : entries) {
        std::string_view name = entry.name;
        if (entry.is_directory || !name.starts_with(halt_file_name)) continue;
        name.remove_prefix(halt_file_name.size());
        const auto path = join_path(directory, entry.name);
        if (name.starts_with('.') && is_hex(name.substr(1), 16)) {
            keep(storage.remove(path));
        } else if (name.starts_with(obeyed_infix)) {
            name.remove_prefix(obeyed_infix.size());
            const auto obeyed = name.substr(0, 8);
            const auto rest = name.substr(obeyed.size());
            if (is_hex(obeyed, 8) && rest.starts_with('.') && is_hex(rest.substr(1), 16))
                keep(finish_removal(storage, directory, path, obeyed));
        }
    }
    return first_failure;
}

std::string when_text(const Halt& halt) {
    std::string text;
    const auto add = [&](const std::string& condition) { text += (text.empty() ? "" : " or ") + condition; };
    if (halt.now) add("now");
    if (halt.after_saves) add("after " + counted(*halt.after_saves, "save"));
    if (halt.at_unix) add("at " + moment_text(*halt.at_unix));
    if (halt.before_unix) add("before " + moment_text(*halt.before_unix));
    if (!halt.stop_before_seconds) return text;
    const auto time = duration_text(*halt.stop_before_seconds * 1000);
    return text.empty() ? time + " before the end of the job"
                        : text + ", with " + time + " for the last save before an end";
}

}  // namespace tailrace::internal
