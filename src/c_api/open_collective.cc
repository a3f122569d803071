#include "c_api/open_collective.h"

#include <filesystem>

#include "c_api/call.h"
#include "collective/hints.h"

namespace tailrace::internal {

Result<std::unique_ptr<collective::CollectiveFile>> open_collective(
    std::shared_ptr<Transport> transport, const std::string& path, collective::Mode mode,
    const Result<std::map<std::string, std::string>>& hints) {
    collective::Options options;
    options.mode = mode;
    std::shared_ptr<Storage> storage;
    std::string absolute = path;  // the working directory may be another one when the file is opened
    const Status mine = catching([&] {
        TAILRACE_TRY(hints.status());
        TAILRACE_TRY(collective::set_hints(options, *hints));
        SystemStorageOptions system;
        system.engine = IoEngine::posix;
        system.rules.follow_links = true;  // it is the program's own file, and MPI_File_open follows links
        TAILRACE_ASSIGN(storage, make_system_storage(system));
        if (!path.empty()) absolute = std::filesystem::absolute(path).string();
        return Status();
    });
    if (Status all = agree(*transport, mine); !all.ok())
        return all.with_context("opening '" + path + "' collectively");
    return collective::open_collective_file(std::move(transport), std::move(storage), absolute, options);
}

}  // namespace tailrace::internal
