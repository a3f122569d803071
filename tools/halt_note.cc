#include "halt_note.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/time_text.h"

namespace tailrace::internal::tool {

std::optional<std::string> halt_note(Storage& storage, const std::string& directory) {
    const auto halt = read_halt(storage, directory);
    if (!halt.ok()) return "a halt file is not obeyed: " + halt.status().message();
    if (!*halt) return std::nullopt;
    std::string text = "a session that asks should_stop is to stop " + when_text(**halt);
    if (!(*halt)->by.empty()) text += fmt::format(" (asked by {})", (*halt)->by);
    return text;
}

nlohmann::ordered_json to_json(const Halt& halt) {
    nlohmann::ordered_json json;
    if (halt.now) json["now"] = true;
    if (halt.after_saves) json["after_saves"] = *halt.after_saves;
    if (halt.at_unix) {
        json["at"] = moment_text(*halt.at_unix);
        json["at_unix"] = *halt.at_unix;
    }
    if (halt.before_unix) {
        json["before"] = moment_text(*halt.before_unix);
        json["before_unix"] = *halt.before_unix;
    }
    if (halt.stop_before_seconds) json["stop_before_seconds"] = *halt.stop_before_seconds;
    if (!halt.by.empty()) json["by"] = halt.by;
    return json;
}

nlohmann::ordered_json halt_json(Storage& storage, const std::string& directory) {
    const auto halt = read_halt(storage, directory);
    if (!halt.ok()) return {{"why_not_obeyed", halt.status().message()}};
    return *halt ? to_json(**halt) : nlohmann::ordered_json();
}

}  // namespace tailrace::internal::tool
