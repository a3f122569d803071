// What ls and show say of a halt file in a shared directory (when/halt_file.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "storage/storage.h"
#include "when/halt_file.h"

namespace tailrace::internal::tool {

// "a session that asks should_stop is to stop after 3 saves (asked by anna@login2)", or why the file
// is not obeyed. Nothing if there is none.
std::optional<std::string> halt_note(Storage& storage, const std::string& directory);
// The same as JSON; null if there is none.
nlohmann::ordered_json halt_json(Storage& storage, const std::string& directory);
nlohmann::ordered_json to_json(const Halt& halt);

}  // namespace tailrace::internal::tool
