#include "files/own_files.h"

#include <fmt/format.h>

#include "base/caught.h"
#include "capture/file_sets.h"

namespace tailrace::internal {

namespace {

constexpr mode_t tier_rights = 0700;

}  // namespace

Status OwnFiles::check_open() const {
    return ended_ ? Status(Code::failed_state, "the session is closed") : Status();
}

Status OwnFiles::check_restored() const {
    TAILRACE_TRY(check_open());
    if (restored_ != nullptr) return {};
    return Status(Code::failed_state,
                  "no epoch's files are restored: tailrace_files_restore comes first, and "
                  "tailrace_files_release last");
}

// Somebody may have removed the node's directory since the session began.
Result<std::shared_ptr<FileTree>> OwnFiles::make_tree() {
    const auto directory = session_.node_directory();
    TAILRACE_TRY(local_.make_directories(directory).with_context("making the node-local directory"));
    const auto name = file_set_name(session_.run(), session_.rank(), ++trees_);
    return FileTree::make(directory, name, TreeParent::own, tier_rights);
}

Status OwnFiles::begin() {
    MutexLock lock(mutex_);
    TAILRACE_TRY(check_open());
    if (routed_ != nullptr)
        return Status(Code::failed_state,
                      "files were begun already, and stay as they are; tailrace_files_save ends them");
    TAILRACE_ASSIGN(auto tree, make_tree());
    routed_ = std::make_unique<RoutedFiles>(std::move(tree));
    return {};
}

Result<std::string> OwnFiles::route(std::string_view name) {
    MutexLock lock(mutex_);
    TAILRACE_TRY(check_open());
    if (routed_ == nullptr)
        return Status(Code::failed_state, "no files were begun: tailrace_files_begin comes first");
    return routed_->route(name);
}

Status OwnFiles::save(uint64_t epoch, bool whole) {
    MutexLock lock(mutex_);
    TAILRACE_TRY(check_open());
    const auto routed = std::move(routed_);  // goes when this returns
    std::vector<RegionSource> sources;
    const Status mine = catching([&]() -> Status {
        if (routed == nullptr)
            return Status(Code::failed_state,
                          "no files were begun on this rank: tailrace_files_begin comes first");
        if (!whole)
            return Status(
                Code::aborted,
                fmt::format("the program has said on rank {} that its files are not whole", session_.rank()));
        TAILRACE_ASSIGN(sources, routed->sources(session_.config().files_as == FilesAs::original));
        return {};
    });
    // The other ranks wait for this one, or capture their part, so they must hear of it.
    const Status saved =
        mine.ok() ? session_.save_with(epoch, std::move(sources)) : session_.give_up(epoch, mine);
    if (saved.ok() || routed == nullptr) return saved;
    return Status(saved.code(), saved.message() + "; this rank's files are removed, so begin files anew");
}

Result<uint64_t> OwnFiles::restore(std::optional<uint64_t> epoch, bool all_ranks) {
    MutexLock lock(mutex_);
    TAILRACE_TRY(check_open());
    restored_ = nullptr;
    std::unique_ptr<RestoredFiles> restored;
    // Called again for each source of an epoch, and for older epochs.
    const auto use = [&](EpochReader& reader) REQUIRES(mutex_) -> Status {
        restored = nullptr;
        try {
            auto tree = make_tree();
            // No other epoch would help.
            if (!tree.ok()) return Status(Code::failed_state, tree.status().message());
            restored = std::make_unique<RestoredFiles>(std::move(*tree), own_rank());
            return restored->write_own(reader);
        } catch (...) {
            return caught_status();
        }
    };
    TAILRACE_ASSIGN(auto reader, session_.restore_and_use(epoch, all_ranks, use));
    const uint64_t found = reader->key().epoch;
    // Later saves may remove its files before other ranks' are asked for. Those that are open stay.
    if (all_ranks || reader->rank_count() != static_cast<uint32_t>(session_.rank_count()))
        (void)reader->open_files();
    restored->keep(std::move(reader));
    restored_ = std::move(restored);
    return found;
}

Result<const std::vector<EpochFile>*> OwnFiles::files(uint32_t rank) {
    MutexLock lock(mutex_);
    TAILRACE_TRY(check_restored());
    return restored_->files(rank);
}

Result<std::string> OwnFiles::find(std::optional<uint32_t> rank, std::string_view name) {
    MutexLock lock(mutex_);
    TAILRACE_TRY(check_restored());
    return restored_->find(rank, name);
}

void OwnFiles::release() {
    MutexLock lock(mutex_);
    restored_ = nullptr;
}

void OwnFiles::end() {
    MutexLock lock(mutex_);
    routed_ = nullptr;
    restored_ = nullptr;
    ended_ = true;
}

}  // namespace tailrace::internal
