#include "format/epoch_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "format/plan_record.h"
#include "format/shared_file.h"

namespace tailrace::internal {

namespace {

constexpr size_t max_job_name_bytes = 100;
constexpr std::string_view unfinished_suffix = ".unfinished";
constexpr std::string_view takeover_suffix = ".takeover";
constexpr std::string_view plan_suffix = ".plan";
constexpr std::string_view local_plan_suffix = ".local-plan";

bool job_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

template <class T>
bool read_number(std::string_view text, T& number) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
}

bool remove_prefix(std::string_view& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

// The fields of "JOB.eN.rN.X.SUFFIX[.unfinished]", split at its dots. `rest` is X.
struct NameFields {
    std::string job;
    EpochKey key;
    std::string_view rest;
    bool unfinished = false;
};

std::optional<NameFields> take_apart(std::string_view text, std::string_view suffix) {
    NameFields name;
    if (text.ends_with(unfinished_suffix)) {
        name.unfinished = true;
        text.remove_suffix(unfinished_suffix.size());
    }
    if (!text.ends_with(suffix)) return std::nullopt;
    text.remove_suffix(suffix.size());
    std::vector<std::string_view> fields;
    while (fields.size() < 4) {
        auto dot = text.find('.');
        fields.push_back(text.substr(0, dot));
        if (dot == std::string_view::npos) break;
        text.remove_prefix(dot + 1);
    }
    if (fields.size() != 4) return std::nullopt;
    if (!check_job_name(fields[0]).ok()) return std::nullopt;
    name.job = fields[0];
    if (!remove_prefix(fields[1], "e") || !read_number(fields[1], name.key.epoch)) return std::nullopt;
    if (!remove_prefix(fields[2], "r") || !read_number(fields[2], name.key.run)) return std::nullopt;
    name.rest = fields[3];
    return name;
}

}  // namespace

std::string to_string(const EpochKey& key) {
    return fmt::format("epoch {} of run {}", key.epoch, key.run);
}

Status check_job_name(std::string_view name) {
    if (name.empty() || name.size() > max_job_name_bytes)
        return Status(Code::invalid_argument,
                      fmt::format("the job name has {} characters, but may have 1 to {}", name.size(),
                                  max_job_name_bytes));
    if (!std::all_of(name.begin(), name.end(), job_character))
        return Status(
            Code::invalid_argument,
            fmt::format("the job name \"{}\" may have letters a-z A-Z, digits, '-' and '_' only", name));
    return Status();
}

std::string to_string(const SharedFileName& name) {
    return fmt::format("{}.e{:09}.r{:04}.{}of{}.tailrace{}", name.job, name.key.epoch, name.key.run,
                       uint64_t{name.index} + 1, name.count, name.unfinished ? unfinished_suffix : "");
}

std::string unfinished_name(const SharedFileName& name) {
    SharedFileName unfinished = name;
    unfinished.unfinished = true;
    return to_string(unfinished);
}

std::string takeover_name(const SharedFileName& name) {
    SharedFileName finished = name;
    finished.unfinished = false;
    return to_string(finished) + std::string(takeover_suffix);
}

std::optional<SharedFileName> parse_takeover_name(std::string_view text) {
    if (!text.ends_with(takeover_suffix)) return std::nullopt;
    text.remove_suffix(takeover_suffix.size());
    auto name = parse_shared_file_name(text);
    if (!name || name->unfinished) return std::nullopt;
    return name;
}

std::string to_string(const TakeoverLockName& name) {
    return fmt::format("{}.e{:09}.r{:04}.takeover.lock", name.job, name.key.epoch, name.key.run);
}

std::optional<TakeoverLockName> parse_takeover_lock_name(std::string_view text) {
    const auto fields = take_apart(text, ".lock");
    if (!fields || fields->unfinished) return std::nullopt;
    TakeoverLockName name{fields->job, fields->key};
    if (to_string(name) != text) return std::nullopt;
    return name;
}

std::optional<SharedFileName> parse_shared_file_name(std::string_view text) {
    auto fields = take_apart(text, ".tailrace");
    if (!fields) return std::nullopt;
    auto of = fields->rest.find("of");
    uint32_t number = 0, count = 0;
    if (of == std::string_view::npos || !read_number(fields->rest.substr(0, of), number) ||
        !read_number(fields->rest.substr(of + 2), count) || number == 0 || number > count ||
        count > max_files)
        return std::nullopt;
    SharedFileName name{fields->job, fields->key, number - 1, count, fields->unfinished};
    // A number can be written in several ways. Only the way in which we write it makes the name
    // ours.
    if (to_string(name) != text) return std::nullopt;
    return name;
}

std::string to_string(const PartFileName& name) {
    return fmt::format("{}.e{:09}.r{:04}.p{:05}.capture{}", name.job, name.key.epoch, name.key.run, name.rank,
                       name.unfinished ? unfinished_suffix : "");
}

std::optional<PartFileName> parse_part_file_name(std::string_view text) {
    auto fields = take_apart(text, ".capture");
    if (!fields) return std::nullopt;
    PartFileName name{fields->job, fields->key, 0, fields->unfinished};
    if (!remove_prefix(fields->rest, "p") || !read_number(fields->rest, name.rank) || name.rank >= max_ranks)
        return std::nullopt;
    if (to_string(name) != text) return std::nullopt;
    return name;
}

std::string to_string(const PlanFileName& name) {
    return fmt::format("{}.e{:09}.r{:04}.n{:05}{}{}", name.job, name.key.epoch, name.key.run, name.node,
                       name.local ? local_plan_suffix : plan_suffix,
                       name.unfinished ? unfinished_suffix : "");
}

std::optional<PlanFileName> parse_plan_file_name(std::string_view text) {
    auto fields = take_apart(text, plan_suffix);
    const bool local = !fields;
    if (local) fields = take_apart(text, local_plan_suffix);
    if (!fields) return std::nullopt;
    PlanFileName name{fields->job, fields->key, 0, fields->unfinished, local};
    if (!remove_prefix(fields->rest, "n") || !read_number(fields->rest, name.node) || name.node >= max_ranks)
        return std::nullopt;
    if (to_string(name) != text) return std::nullopt;
    return name;
}

std::string to_string(const KeptPlanFileName& name) {
    return fmt::format("{}.e{:09}.r{:04}.n{:05}.kept-plan{}", name.job, name.key.epoch, name.key.run,
                       name.node, name.unfinished ? unfinished_suffix : "");
}

std::optional<KeptPlanFileName> parse_kept_plan_file_name(std::string_view text) {
    auto fields = take_apart(text, ".kept-plan");
    if (!fields) return std::nullopt;
    KeptPlanFileName name{fields->job, fields->key, 0, fields->unfinished};
    if (!remove_prefix(fields->rest, "n") || !read_number(fields->rest, name.node) || name.node >= max_ranks)
        return std::nullopt;
    if (to_string(name) != text) return std::nullopt;
    return name;
}

std::string to_string(const ProtectFileName& name) {
    return fmt::format("{}.e{:09}.r{:04}.n{:05}.protect{}", name.job, name.key.epoch, name.key.run, name.node,
                       name.unfinished ? unfinished_suffix : "");
}

std::optional<ProtectFileName> parse_protect_file_name(std::string_view text) {
    auto fields = take_apart(text, ".protect");
    if (!fields) return std::nullopt;
    ProtectFileName name{fields->job, fields->key, 0, fields->unfinished};
    if (!remove_prefix(fields->rest, "n") || !read_number(fields->rest, name.node) || name.node >= max_ranks)
        return std::nullopt;
    if (to_string(name) != text) return std::nullopt;
    return name;
}

std::string finished_path(std::string_view path) {
    if (!path.ends_with(unfinished_suffix)) return {};
    return std::string(path.substr(0, path.size() - unfinished_suffix.size()));
}

}  // namespace tailrace::internal
