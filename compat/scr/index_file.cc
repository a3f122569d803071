// How the index comes from its file and into it.
#include <fcntl.h>

#include <filesystem>

#include "common/small_file.h"
#include "index.h"

namespace scr_on_tailrace {

namespace {

constexpr const char* what_stays = "the index";
constexpr unsigned rights = 0666;  // but for the umask

}  // namespace

Index IndexFile::read() const {
    std::error_code error;
    if (!std::filesystem::exists(path_, error) && !error) return {};
    const auto text = on_tailrace::read_file(path_, what_stays);
    try {
        return Index::decode(text);
    } catch (const tailrace::Error& why) {
        throw tailrace::Error(why.code(), path_ + ": " + why.what() +
                                              "; move the file away to begin without names of datasets");
    }
}

void IndexFile::change(const std::function<void(Index&)>& change) const {
    const on_tailrace::OpenFile lock(path_ + ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, rights,
                                     what_stays);
    lock.lock(longest_wait_);
    auto index = read();
    const auto before = index.encode();
    change(index);
    if (index.encode() == before) return;
    on_tailrace::replace_file(path_, index.encode(), what_stays);
}

}  // namespace scr_on_tailrace
