// The conformance cases of a storage over the system's files: a disk (TMPDIR, else /tmp) and a file system in
// memory (/dev/shm), through the page cache and past it. `make` gets the directory in which the scratch
// directory lies.
#pragma once

#include <unistd.h>

#include <vector>

#include "storage/conformance.h"
#include "storage/scratch.h"
#include "storage/system_path.h"

namespace tailrace::internal::test {

inline std::vector<StorageCase> system_cases(
    const std::string& name, std::function<std::shared_ptr<Storage>(const std::string&)> make) {
    auto in = [make](std::string base) {
        return [make, base] {
            auto scratch = std::make_shared<ScratchDirectory>(base);
            return StorageFixture{make(parent_of(scratch->path())), scratch->path(), scratch};
        };
    };
    std::vector<StorageCase> cases = {{name + "_disk", in(""), DirectIo::off},
                                      {name + "_disk_direct", in(""), DirectIo::automatic}};
    const ScratchDirectory disk("");
    if (make(parent_of(disk.path()))->open(disk / "a", {Access::write, DirectIo::uncached}).ok())
        cases.push_back({name + "_disk_uncached", in(""), DirectIo::uncached});
    if (access("/dev/shm", W_OK) == 0) {
        cases.push_back({name + "_shm", in("/dev/shm"), DirectIo::off});
        cases.push_back({name + "_shm_direct", in("/dev/shm"), DirectIo::automatic});
    }
    return cases;
}

}  // namespace tailrace::internal::test
