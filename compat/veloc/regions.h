// regions.h - what the program has protected, by group and id, and which of it a call means.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tailrace_types.hpp>
#include <utility>
#include <vector>
#include <veloc.hpp>

namespace veloc_on_tailrace {

inline constexpr const char* default_group = "default";

// Either memory, or a pair of functions that write and read a stream.
struct Region {
    void* memory = nullptr;
    size_t bytes = 0;
    std::function<void(std::ostream&)> serialize = {};
    std::function<bool(std::istream&)> deserialize = {};
};
using Group = std::map<int, Region>;

class Regions {
  public:
    void protect(const std::string& group, int id, Region region);
    bool unprotect(const std::string& group, int id);  // whether it was protected
    void clear(const std::string& group) { groups_.erase(group); }

    // The group that a checkpoint of this name takes, and its name.
    std::pair<std::string, const Group*> of_checkpoint(const std::string& name) const;

  private:
    std::map<std::string, Group> groups_;
};

// VELOC_CKPT_... and VELOC_RECOVER_... have the same numbers.
enum class Choice { all = VELOC_CKPT_ALL, some = VELOC_CKPT_SOME, rest = VELOC_CKPT_REST };
// Throws tailrace::Error for another number.
Choice choice_of(int mode);
bool chosen(Choice choice, const std::set<int>& listed, int id);

// What a region is called in an epoch, and back: the id, or nothing for a name that is not one of these.
std::string region_name(const std::string& group, int id);
std::optional<int> id_of_region(const std::string& name);

}  // namespace veloc_on_tailrace
