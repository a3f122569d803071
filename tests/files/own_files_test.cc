// OwnFiles: files that ranks write by themselves travel with their epoch, and come back.
#include "files/own_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "base/crc32c.h"
#include "catalog/catalog.h"
#include "doubles/faulty_storage.h"
#include "format/original_files.h"
#include "session/cluster.h"
#include "storage/scratch.h"

namespace tailrace::internal {
namespace {

namespace fs = std::filesystem;
using namespace testing_support;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds for_ever{0};

struct Content {
    std::string bytes;
    unsigned rights = 0;
    bool operator==(const Content&) const = default;
};
using Files = std::map<std::string, Content>;

void write(const std::string& path, const Content& content) {
    std::ofstream(path, std::ios::binary) << content.bytes;
    fs::permissions(path, fs::perms{content.rights});
}
Content read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return {text.str(), static_cast<unsigned>(fs::status(path).permissions())};
}

// Names in up to three directories, sizes from nothing to several pieces of a capture, any rights by which
// the owner may read.
Files random_files(std::mt19937_64& random) {
    const auto below = [&](uint64_t end) { return random() % end; };
    FileNames names;
    Files files;
    for (uint64_t tries = below(5); tries > 0; --tries) {
        std::string name;
        for (uint64_t depth = below(3); depth > 0; --depth) name += fmt::format("d{}/", below(3));
        name += fmt::format("{} ä.{}", below(4), below(4));
        if (!names.add(name).ok()) continue;
        static constexpr uint64_t scales[] = {0, 100, 5000, 300000, 3000000};
        const uint64_t scale = scales[below(std::size(scales))];
        auto& content = files[name];
        content.bytes.resize(scale == 0 ? 0 : scale / 2 + below(scale));
        for (size_t at = 0; at < content.bytes.size(); at += sizeof(uint64_t)) {
            const uint64_t word = random();
            std::memcpy(content.bytes.data() + at, &word, std::min(sizeof word, content.bytes.size() - at));
        }
        content.rights = 0400u | static_cast<unsigned>(below(01000));
    }
    return files;
}

class OwnFilesTest : public testing::Test {
  protected:
    // Ranks on one machine, with files in directories of this test.
    Job job(int nodes, int per_node, bool concurrent = true) const {
        Job made;
        made.hosts = std::vector<std::string>(static_cast<size_t>(nodes * per_node), "m");
        made.config.ranks_per_node = static_cast<uint32_t>(per_node);
        made.config.local_dir = scratch_ / "local";
        made.config.shared_dir = scratch_ / "shared";
        made.config.record = false;
        made.config.keep_local = 2;
        made.concurrent = concurrent;
        made.shared = *make_system_storage({.engine = IoEngine::posix});
        made.local = [local_dir = made.config.local_dir](const std::string&) {
            SystemStorageOptions options;
            options.engine = IoEngine::posix;
            options.rules.own_in = local_dir;
            return *make_system_storage(options);
        };
        return made;
    }
    using Body = std::function<void(int rank, Checkpointer& session, OwnFiles& files)>;
    static void run(const Job& job, const Body& body) {
        run_job(job, [&](int rank, Checkpointer* session, const Status& opened) {
            ASSERT_TRUE(opened.ok()) << opened.message();
            const auto local = job.local(job.hosts[static_cast<size_t>(rank)]);
            OwnFiles files(*session, *local);
            body(rank, *session, files);
            files.end();
            (void)session->close();
        });
    }
    static Status save(OwnFiles& files, uint64_t epoch, const Files& contents) {
        TAILRACE_TRY(files.begin());
        for (const auto& [name, content] : contents) {
            TAILRACE_ASSIGN(const auto path, files.route(name));
            write(path, content);
        }
        return files.save(epoch, true);
    }
    static void expect_files(OwnFiles& files, uint32_t rank, const Files& contents) {
        const auto listed = files.files(rank);
        ASSERT_TRUE(listed.ok()) << listed.status().message();
        EXPECT_EQ((*listed)->size(), contents.size());
        for (const auto& [name, content] : contents) {
            const auto path = files.find(rank, name);
            ASSERT_TRUE(path.ok()) << path.status().message();
            EXPECT_TRUE(read(*path) == content) << "rank " << rank << ", \"" << name << "\"";
        }
    }
    // Directories with files of the program that are there, in all nodes' directories.
    size_t trees() const {
        size_t count = 0;
        for (const auto& node : fs::directory_iterator(scratch_ / "local"))
            for (const auto& entry : fs::directory_iterator(node)) count += entry.is_directory() ? 1 : 0;
        return count;
    }

    test::ScratchDirectory scratch_;
};

// On a file system in memory, where the part is mapped, and elsewhere.
TEST_F(OwnFilesTest, WhatAnyNumberOfRanksWroteComesBack) {
    const uint64_t seed = test::test_seed();
    std::cout << "TAILRACE_SEED=" << seed << "\n";
    std::mt19937_64 random(seed);
    constexpr int ranks = 4;
    for (const bool in_memory : {false, true}) {
        const test::ScratchDirectory memory(in_memory && fs::exists("/dev/shm") ? "/dev/shm" : "");
        Job saving = job(2, ranks / 2);
        saving.config.shared_dir += fmt::format("{}", in_memory);
        saving.config.local_dir = memory / "local";
        SystemStorageOptions options;
        options.engine = IoEngine::posix;
        options.rules.own_in = saving.config.local_dir;
        saving.local = [options](const std::string&) { return *make_system_storage(options); };
        constexpr uint64_t epochs = 3;
        std::vector<std::vector<Files>> written(epochs + 1, std::vector<Files>(ranks));
        for (auto& of_epoch : written)
            for (auto& of_rank : of_epoch) of_rank = random_files(random);
        run(saving, [&](int rank, Checkpointer& session, OwnFiles& files) {
            std::vector<std::byte> state = content(1, rank, 0, 5000);
            ASSERT_TRUE(session.register_region("state", state.data(), state.size()).ok());
            for (uint64_t epoch = 1; epoch <= epochs; ++epoch) {
                const Status saved = save(files, epoch, written[epoch][static_cast<size_t>(rank)]);
                ASSERT_TRUE(saved.ok()) << saved.message();
            }
            ASSERT_TRUE(session.wait_all(for_ever).ok());
        });
        run(saving, [&](int rank, Checkpointer& session, OwnFiles& files) {
            std::vector<std::byte> state(5000);
            ASSERT_TRUE(session.register_region("state", state.data(), state.size()).ok());
            for (const std::optional<uint64_t> epoch :
                 {std::optional<uint64_t>(), std::optional<uint64_t>(2)}) {
                const auto restored = files.restore(epoch, false);
                ASSERT_TRUE(restored.ok()) << restored.status().message();
                EXPECT_EQ(*restored, epoch.value_or(epochs));
                EXPECT_EQ(state, content(1, rank, 0, 5000));
                expect_files(files, static_cast<uint32_t>(rank),
                             written[*restored][static_cast<size_t>(rank)]);
            }
        });
        fs::remove_all(saving.config.local_dir);
        for (const int others : {1, 3, 5}) {
            Job restoring = saving;
            restoring.hosts.resize(static_cast<size_t>(others), "m");
            run(restoring, [&](int, Checkpointer&, OwnFiles& files) {
                const auto restored = files.restore(std::nullopt, others == 3);
                ASSERT_TRUE(restored.ok()) << restored.status().message();
                for (uint32_t of_rank = 0; of_rank < ranks; ++of_rank)
                    expect_files(files, of_rank, written[epochs][of_rank]);
                EXPECT_EQ(files.files(ranks).status().code(), Code::not_found);
            });
        }
    }
}

// The epoch fails everywhere, whether saves are collective or not, and the session goes on.
TEST_F(OwnFilesTest, ARankWithoutWholeFilesFailsTheEpochEverywhere) {
    const std::vector<std::pair<std::string, std::string>> ways = {
        {"not whole", "rank 1 that its files are not whole"},
        {"not begun", "no files were begun on this rank"},
        {"not written", "never written"},
        {"a link", "is a symbolic link"}};
    write(scratch_ / "outside", {"precious", 0600});
    for (const bool concurrent : {true, false}) {
        for (const char* directory : {"shared", "local"}) fs::remove_all(scratch_ / directory);
        run(job(2, 1, concurrent), [&](int rank, Checkpointer& session, OwnFiles& files) {
            ASSERT_TRUE(save(files, 1, {{"x", {"first", 0600}}}).ok());
            uint64_t epoch = 1;
            for (const auto& [way, sentence] : ways) {
                SCOPED_TRACE(way);
                ++epoch;
                Status saved;
                if (rank == 0) {
                    saved = save(files, epoch, {{"x", {"second", 0600}}});
                    EXPECT_TRUE(saved.ok()) << saved.message();
                } else {
                    if (way != "not begun") {
                        ASSERT_TRUE(files.begin().ok());
                        const auto path = *files.route("x");
                        if (way == "not whole") write(path, {"half", 0600});
                        if (way == "a link") fs::create_symlink(scratch_ / "outside", path);
                    }
                    saved = files.save(epoch, way != "not whole");
                    EXPECT_THAT(saved.message(), HasSubstr(sentence));
                }
                const Status waited = session.wait(epoch, for_ever);
                EXPECT_FALSE(waited.ok());
                EXPECT_THAT(waited.message(), HasSubstr(sentence));
            }
            ASSERT_TRUE(session.wait(1, for_ever).ok());
            const auto restored = files.restore(std::nullopt, false);
            ASSERT_TRUE(restored.ok()) << restored.status().message();
            EXPECT_EQ(*restored, 1u);
            expect_files(files, static_cast<uint32_t>(rank), {{"x", {"first", 0600}}});
            EXPECT_TRUE(save(files, 99, {}).ok());
            EXPECT_TRUE(session.wait(99, for_ever).ok());
        });
        EXPECT_EQ(trees(), 0u);
    }
    EXPECT_EQ(read(scratch_ / "outside").bytes, "precious");
}

TEST_F(OwnFilesTest, RanksMaySaveWithoutFilesAndAnEpochWithoutFilesHasNone) {
    run(job(1, 2), [&](int rank, Checkpointer& session, OwnFiles& files) {
        if (rank == 0) {
            EXPECT_TRUE(save(files, 1, {{"x", {"only", 0644}}}).ok());
        } else {
            EXPECT_TRUE(session.save(1).ok());
        }
        EXPECT_TRUE(session.save(2).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        ASSERT_TRUE(files.restore(std::nullopt, false).ok());
        EXPECT_TRUE((*files.files(0))->empty());
        EXPECT_EQ(files.find(std::nullopt, "x").status().code(), Code::not_found);
        ASSERT_TRUE(files.restore(1, true).ok());
        EXPECT_EQ((*files.files(0))->size(), 1u);
        EXPECT_TRUE((*files.files(1))->empty());
        const auto path = files.find(std::nullopt, "x");
        ASSERT_TRUE(path.ok()) << path.status().message();
        EXPECT_EQ(read(*path).bytes, "only");
    });
}

// There was no room. Once there is, the same file is found.
TEST_F(OwnFilesTest, AFindThatFailedCanBeTriedAgain) {
    run(job(1, 2), [&](int, Checkpointer& session, OwnFiles& files) {
        ASSERT_TRUE(save(files, 1, {{"a/x", {std::string(3 << 20, 'x'), 0600}}}).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
    });
    run(job(1, 1), [&](int, Checkpointer&, OwnFiles& files) {
        ASSERT_TRUE(files.restore(std::nullopt, false).ok());
        rlimit before{};
        ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
        rlimit least = before;
        least.rlim_cur = 1 << 20;
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &least), 0);
        const Status refused = files.find(1, "a/x").status();
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
        EXPECT_EQ(refused.code(), Code::no_space) << refused.message();
        const auto found = files.find(1, "a/x");
        ASSERT_TRUE(found.ok()) << found.status().message();
        EXPECT_EQ(read(*found).bytes.size(), 3u << 20);
    });
}

TEST_F(OwnFilesTest, AFileIsFoundByARankOrByANameThatIsUnique) {
    run(job(1, 3), [&](int rank, Checkpointer& session, OwnFiles& files) {
        Files mine = {{fmt::format("only.{}", rank), {"one", 0600}}};
        if (rank != 2) mine["both"] = {fmt::format("of rank {}", rank), 0600};
        ASSERT_TRUE(save(files, 1, mine).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        ASSERT_TRUE(files.restore(std::nullopt, true).ok());
        EXPECT_EQ(read(*files.find(std::nullopt, "only.1")).bytes, "one");
        EXPECT_EQ(read(*files.find(0, "both")).bytes, "of rank 0");
        const auto both = files.find(std::nullopt, "both");
        if (rank == 2) {
            EXPECT_EQ(both.status().code(), Code::invalid_argument);
            EXPECT_THAT(both.status().message(), HasSubstr("several ranks, such as 0 and 1"));
        } else {
            EXPECT_EQ(read(*both).bytes, fmt::format("of rank {}", rank));
        }
        EXPECT_EQ(files.find(std::nullopt, "onyl.1").status().code(), Code::not_found);
        EXPECT_THAT(files.find(1, "onyl.1").status().message(), HasSubstr("the nearest name is \"only.1\""));
        EXPECT_EQ(files.find(7, "both").status().code(), Code::not_found);
        EXPECT_THAT(files.find(0, "../both").status().message(), HasSubstr("component \"..\""));
    });
}

// The files of a rank count like its regions.
TEST_F(OwnFilesTest, AnEpochWithADamagedFileIsPassedOver) {
    const Job one = job(1, 2);
    const auto contents = [](int rank, uint64_t epoch) {
        return Files{{"x", {fmt::format("rank {} epoch {} ", rank, epoch) + std::string(3000, 'x'), 0600}}};
    };
    run(one, [&](int rank, Checkpointer& session, OwnFiles& files) {
        for (uint64_t epoch = 1; epoch <= 2; ++epoch)
            ASSERT_TRUE(save(files, epoch, contents(rank, epoch)).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
    });
    fs::remove_all(scratch_ / "local");
    int flipped = 0;
    for (const auto& entry : fs::directory_iterator(scratch_ / "shared")) {
        std::string bytes = read(entry.path()).bytes;
        const size_t at = bytes.find("rank 1 epoch 2");
        if (at == std::string::npos) continue;
        bytes[at] = 'R';
        std::ofstream(entry.path(), std::ios::binary) << bytes;
        ++flipped;
    }
    ASSERT_EQ(flipped, 1);
    run(one, [&](int rank, Checkpointer&, OwnFiles& files) {
        const auto restored = files.restore(std::nullopt, false);
        ASSERT_TRUE(restored.ok()) << restored.status().message();
        EXPECT_EQ(*restored, 1u);
        expect_files(files, static_cast<uint32_t>(rank), contents(rank, 1));
    });
    EXPECT_EQ(trees(), 0u);
}

// ---- files_as = original ------------------------------------------------------------------------

class OriginalFilesTest : public OwnFilesTest {
  protected:
    Job original_job(int nodes, int per_node, bool concurrent = true) const {
        Job made = job(nodes, per_node, concurrent);
        made.config.files_as = FilesAs::original;
        return made;
    }
    static Files files_of(int rank, uint64_t epoch) {
        const auto text = fmt::format("rank {} epoch {}", rank, epoch);
        return {{fmt::format("r{}", rank), {text + std::string(300'000, 'x'), 0640}},
                {fmt::format("d/e/r{}", rank), {text, 0444}}};
    }
    static std::string name_of(uint64_t epoch) { return fmt::format("job.files/e{:09}", epoch); }
    // What a reader sees who knows nothing of tailrace, and what the mark says of it.
    void expect_original(uint64_t epoch, int ranks) const {
        const auto directory = scratch_ / ("shared/" + name_of(epoch));
        const auto list = decode_file_list(read(directory + "/tailrace.complete").bytes);
        ASSERT_TRUE(list.ok()) << list.status().message();
        EXPECT_EQ(list->files.size(), 2u * static_cast<size_t>(ranks));
        for (const auto& file : list->files) {
            const auto bytes = read(directory + "/" + file.name).bytes;
            EXPECT_EQ(crc32c(std::as_bytes(std::span(bytes))), file.crc) << file.name;
        }
        for (int rank = 0; rank < ranks; ++rank)
            for (const auto& [name, content] : files_of(rank, epoch))
                EXPECT_TRUE(read(directory + "/" + name) == content) << name;
    }
    std::vector<std::string> names() const {
        std::vector<std::string> found;
        if (fs::exists(scratch_ / "shared/job.files"))
            for (const auto& entry : fs::directory_iterator(scratch_ / "shared/job.files"))
                found.push_back("job.files/" + entry.path().filename().string());
        return found;
    }
};

TEST_F(OriginalFilesTest, WhatIsKeptLiesThereAsItWasAndComesBack) {
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        for (const char* directory : {"shared", "local"}) fs::remove_all(scratch_ / directory);
        Job saving = original_job(2, 2, concurrent);
        saving.config.keep_shared = 2;
        run(saving, [&](int rank, Checkpointer& session, OwnFiles& files) {
            for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
                const Status saved = save(files, epoch, files_of(rank, epoch));
                ASSERT_TRUE(saved.ok()) << saved.message();
                const Status waited = session.wait(epoch, for_ever);
                ASSERT_TRUE(waited.ok()) << waited.message();
                if (rank == 0) expect_original(epoch, 4);
            }
        });
        EXPECT_THAT(names(), testing::UnorderedElementsAre(name_of(2), name_of(3)));
        expect_original(2, 4);
        fs::remove_all(saving.config.local_dir);
        run(saving, [&](int rank, Checkpointer&, OwnFiles& files) {
            ASSERT_TRUE(files.restore(std::nullopt, false).ok());
            expect_files(files, static_cast<uint32_t>(rank), files_of(rank, 3));
        });
    }
}

TEST_F(OriginalFilesTest, OneNameOfTwoRanksFailsTheEpochAndNoOther) {
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        for (const char* directory : {"shared", "local"}) fs::remove_all(scratch_ / directory);
        run(original_job(2, 1, concurrent), [&](int rank, Checkpointer& session, OwnFiles& files) {
            ASSERT_TRUE(save(files, 1, {{"both", {fmt::format("of {}", rank), 0600}}}).ok());
            const Status waited = session.wait(1, for_ever);
            EXPECT_THAT(waited.message(), HasSubstr("another rank have both saved a file \"both\""));
            ASSERT_TRUE(save(files, 2, files_of(rank, 2)).ok());
            EXPECT_TRUE(session.wait(2, for_ever).ok());
        });
        expect_original(2, 2);
        for (const auto& entry : fs::recursive_directory_iterator(scratch_ / "local"))
            EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr(".e000000001.")));
        run(original_job(2, 1, concurrent), [&](int, Checkpointer&, OwnFiles&) {});
        EXPECT_THAT(names(), testing::ElementsAre(name_of(2)));
    }
}

// The shared directory fails for good at any operation of the session. The next session, whatever its own
// setting is, leaves each epoch with all its files, and nothing else.
TEST_F(OriginalFilesTest, TheNextSessionCompletesWhatWasCutShort) {
    uint64_t seed = 0;
    for (const bool concurrent : {true, false})
        for (uint64_t death = 5; death < 150; death += 9) {
            SCOPED_TRACE(fmt::format("concurrent {}, death at operation {}", concurrent, death));
            for (const char* directory : {"shared", "local"}) fs::remove_all(scratch_ / directory);
            Job dying = original_job(2, 1, concurrent);
            FaultPlan plan;
            plan.die_at_operation = death;
            dying.shared = std::make_shared<FaultyStorage>(dying.shared, ++seed, plan);
            run_job(dying, [&](int rank, Checkpointer* session, const Status&) {
                if (session == nullptr) return;
                const auto local = dying.local("m");
                OwnFiles files(*session, *local);
                for (uint64_t epoch = 1; epoch <= 2; ++epoch) (void)save(files, epoch, files_of(rank, epoch));
                files.end();
                (void)session->close();
            });
            run(job(2, 1, concurrent), [&](int, Checkpointer& session, OwnFiles&) {
                const Status waited = session.wait_all(for_ever);
                EXPECT_TRUE(waited.ok()) << waited.message();
            });
            std::vector<std::string> expected;
            const auto storage = make_system_storage({.engine = IoEngine::posix});
            const auto epochs = list_shared(**storage, scratch_ / "shared", "job");
            ASSERT_TRUE(epochs.ok());
            for (const auto& files : *epochs) {
                EXPECT_TRUE(load_shared_epoch(**storage, files).ok());
                expected.push_back(name_of(files.key.epoch));
                expect_original(files.key.epoch, 2);
            }
            EXPECT_THAT(names(), testing::UnorderedElementsAreArray(expected));
            if (HasFailure()) return;
        }
}

TEST_F(OriginalFilesTest, OutputsAreNeverRestored) {
    Job outputs = original_job(1, 2);
    outputs.config.purpose = Purpose::outputs;
    run(outputs, [&](int rank, Checkpointer& session, OwnFiles& files) {
        ASSERT_TRUE(save(files, 1, files_of(rank, 1)).ok());
        ASSERT_TRUE(session.wait(1, for_ever).ok());
        EXPECT_EQ(session.restore(std::nullopt, {}).status().code(), Code::failed_state);
        EXPECT_THAT(files.restore(1, false).status().message(), HasSubstr("purpose = outputs"));
        EXPECT_TRUE(session.open_epoch(1, std::nullopt, true).ok());
    });
    expect_original(1, 2);
}

TEST_F(OwnFilesTest, TheNextSessionOfTheDirectoryRemovesWhatIsLeftOver) {
    const std::string others = scratch_ / "local/job-0123456789abcdef.node0000/r0001.p00000.1.files";
    std::string left;
    run(job(1, 1), [&](int, Checkpointer& session, OwnFiles&) {
        left = session.node_directory() + "/r0001.p00000.7.files";
        fs::create_directories(left + "/a");
        write(left + "/a/x", {"left", 0400});
        write(scratch_ / "outside", {"precious", 0600});
        fs::create_symlink(scratch_.path(), left + "/link");
        fs::create_directories(others);
    });
    EXPECT_TRUE(fs::exists(left));
    run(job(1, 1), [&](int, Checkpointer&, OwnFiles&) { EXPECT_FALSE(fs::exists(left)); });
    EXPECT_TRUE(fs::exists(others)) << "it belongs to another shared directory";
    EXPECT_EQ(read(scratch_ / "outside").bytes, "precious");
}

// As on a machine with two nodes of one job.
TEST_F(OwnFilesTest, WhatLiesInADirectoryThatOthersHoldStays) {
    const Job one = job(1, 1);
    std::string other;
    run(one, [&](int, Checkpointer& session, OwnFiles&) {
        other = session.node_directory();
        other.back() = '1';
        fs::create_directories(other + "/r0001.p00001.1.files");
    });
    fs::permissions(other, fs::perms::owner_all);
    auto lock = one.local("m")->lock_directory(other);
    ASSERT_TRUE(lock.ok()) << lock.status().message();
    run(one, [](int, Checkpointer&, OwnFiles&) {});
    EXPECT_TRUE(fs::exists(other + "/r0001.p00001.1.files"));
    lock->reset();
    run(one, [](int, Checkpointer&, OwnFiles&) {});
    EXPECT_FALSE(fs::exists(other + "/r0001.p00001.1.files"));
}

}  // namespace
}  // namespace tailrace::internal
