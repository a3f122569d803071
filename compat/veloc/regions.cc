#include "regions.h"

#include <charconv>

namespace veloc_on_tailrace {

namespace {

constexpr std::string_view prefix = "veloc/";

}  // namespace

void Regions::protect(const std::string& group, int id, Region region) {
    groups_[group][id] = std::move(region);
}

bool Regions::unprotect(const std::string& group, int id) {
    const auto found = groups_.find(group);
    if (found == groups_.end() || found->second.erase(id) == 0) return false;
    if (found->second.empty()) groups_.erase(found);
    return true;
}

std::pair<std::string, const Group*> Regions::of_checkpoint(const std::string& name) const {
    static const Group none;
    for (const std::string& group : {name, std::string(default_group)})
        if (const auto found = groups_.find(group); found != groups_.end()) return {group, &found->second};
    return {default_group, &none};
}

Choice choice_of(int mode) {
    for (const Choice choice : {Choice::all, Choice::some, Choice::rest})
        if (mode == static_cast<int>(choice)) return choice;
    throw tailrace::Error(TAILRACE_INVALID_ARGUMENT,
                          "mode " + std::to_string(mode) + " is none of ALL (0), SOME (1) and REST (2)");
}

bool chosen(Choice choice, const std::set<int>& listed, int id) {
    return choice == Choice::all || listed.contains(id) == (choice == Choice::some);
}

std::string region_name(const std::string& group, int id) {
    return std::string(prefix) + group + "/" + std::to_string(id);
}

std::optional<int> id_of_region(const std::string& name) {
    const auto slash = name.rfind('/');
    if (!name.starts_with(prefix) || slash < prefix.size()) return std::nullopt;
    int id = 0;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + slash + 1, end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    return id;
}

}  // namespace veloc_on_tailrace
