#include "storage/lock_pieces.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace tailrace::internal {
namespace {

constexpr auto mounts =
    "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "2 1 0:55 / /pfs rw,nosuid - fuse mfs\\04310.77.0.2:9421 rw,user_id=0\n"
    "3 1 0:56 / /my\\040pfs rw master:3 propagate_from:2 - fuse.mfs mfsmaster:9421 rw\n"
    "4 2 8:2 / /pfs/disk rw - xfs /dev/vdb rw\n"
    "5 1 0:57 / /other rw - fuse.sshfs mfs:/home rw\n"
    "6 1 0:58 / /twice rw - fuse mfs\\043server:9421 rw\n"
    "7 1 0:59 / /twice rw - tmpfs none rw\n";

TEST(LockPiecesTest, AreThoseOfTheFileSystemThatIsMountedThere) {
    EXPECT_EQ(lock_piece_bytes(mounts, "/pfs"), 64 * MiB);
    EXPECT_EQ(lock_piece_bytes(mounts, "/pfs/a/b"), 64 * MiB);
    EXPECT_EQ(lock_piece_bytes(mounts, "/my pfs/a"), 64 * MiB);
    EXPECT_EQ(lock_piece_bytes(mounts, "/pfs/disk/a"), 0u) << "another one is mounted within it";
    EXPECT_EQ(lock_piece_bytes(mounts, "/pfsx/a"), 0u);
    EXPECT_EQ(lock_piece_bytes(mounts, "/other/a"), 0u);
    EXPECT_EQ(lock_piece_bytes(mounts, "/twice/a"), 0u) << "the last one mounted is seen";
    EXPECT_EQ(lock_piece_bytes(mounts, "/home"), 0u);
}

TEST(LockPiecesTest, NothingIsKnownFromWhatCannotBeRead) {
    for (const char* text : {"", "\n\n", "1 0 8:1 / /pfs rw", "1 0 8:1 / /pfs rw - fuse", "- - - -"})
        EXPECT_EQ(lock_piece_bytes(text, "/pfs"), 0u) << text;
    EXPECT_EQ(lock_piece_bytes_of("/no/such/directory"), 0u);
}

}  // namespace
}  // namespace tailrace::internal
