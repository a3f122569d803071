// The protector: whole sets in memory, each node driven by a thread of its own as its agent does it.
#include "protect/protector.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "format/hostile.h"
#include "protect/messages.h"
#include "protect/protect_object.h"
#include "protect/world.h"
#include "transport/breaking_transport.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;
using testing_support::domains_of;
using testing_support::job_of;
using testing_support::JobShape;
using testing_support::World;
using namespace std::chrono_literals;

constexpr uint64_t uid = 77;

Redundancy scheme(const std::string& text) {
    return *parse_redundancy(text);
}

struct Node {
    int number = 0;
    Protector& protector;
    Transport& transport;
};
// What a test does on each node: called again and again until every epoch has its result there.
using Script = std::function<void(Node& node, uint64_t round)>;

// Runs a protector per node. `starts`: which epochs each node starts, in order. Returns the results by node,
// in the order of epochs.
std::vector<std::vector<ProtectResult>> run_set(World& world, const JobShape& job, const Sets& sets,
                                                const std::vector<EpochKey>& starts,
                                                const Script& script = nullptr,
                                                uint64_t* most_buffers = nullptr) {
    const auto nodes = static_cast<size_t>(job.topology.node_count());
    auto transports = make_in_process_transports(job.hosts);
    std::vector<std::vector<ProtectResult>> results(nodes);
    std::vector<std::unique_ptr<Protector>> protectors;
    for (size_t n = 0; n < nodes; ++n) {
        const int node = static_cast<int>(n);
        Transport& transport = *transports[static_cast<size_t>(job.topology.representative(node))];
        auto made =
            Protector::create({world.directory(node), false, 0, {}}, sets, job.topology, node, transport,
                              *world.storage("m" + std::to_string(n)), [&transport] { transport.wake(); });
        EXPECT_TRUE(made.ok());
        protectors.push_back(std::move(*made));
    }
    std::atomic<size_t> finished{0};
    std::vector<std::thread> threads;
    for (size_t n = 0; n < nodes; ++n)
        threads.emplace_back([&, n] {
            const int number = static_cast<int>(n);
            auto& protector = *protectors[n];
            Transport& transport = *transports[static_cast<size_t>(job.topology.representative(number))];
            Node node{number, protector, transport};
            if (!script)
                for (const auto& key : starts) {
                    auto work = world.work(job, key, uid, number);
                    protector.start({work.identity, work.parts[n], work.paths});
                }
            const auto deadline = std::chrono::steady_clock::now() + 60s;
            // As an agent does, a node goes on answering others when it is done itself.
            bool done = false;
            for (uint64_t round = 0; finished < nodes; ++round) {
                if (std::chrono::steady_clock::now() > deadline) {
                    ADD_FAILURE() << "node " << n << " has " << results[n].size() << " results";
                    return;
                }
                if (script) script(node, round);
                bool moved = false;
                while (true) {
                    auto message = transport.poll();
                    if (!message.ok() || !message->has_value()) break;
                    EXPECT_TRUE(is_protect_message((**message).bytes));
                    protector.handle((**message).source, (**message).bytes);
                    moved = true;
                }
                moved = protector.step() || moved;
                for (auto& result : protector.take_results()) results[n].push_back(std::move(result));
                if (!done && results[n].size() >= starts.size() && protector.idle()) {
                    done = true;
                    ++finished;
                }
                if (!moved) transport.wait(1ms, protector.moving());
            }
        });
    for (auto& thread : threads) thread.join();
    // Two epochs are under way at a time, and either may end first.
    for (auto& of_node : results)
        std::sort(of_node.begin(), of_node.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    if (most_buffers != nullptr)
        for (const auto& protector : protectors)
            *most_buffers = std::max<uint64_t>(*most_buffers, protector->most_buffers_used());
    return results;
}

void start(World& world, const JobShape& job, Node& node, EpochKey key) {
    auto work = world.work(job, key, uid, node.number);
    node.protector.start({work.identity, work.parts[static_cast<size_t>(node.number)], work.paths});
}

void expect_no_objects(World& world, const JobShape& job) {
    for (int node = 0; node < job.topology.node_count(); ++node)
        EXPECT_THAT(world.files("m" + std::to_string(node), node),
                    testing::Each(testing::EndsWith(".capture")));
}

std::vector<uint64_t> sizes_of(Random& random, size_t ranks) {
    std::vector<uint64_t> sizes;
    for (size_t i = 0; i < ranks; ++i) sizes.push_back(below(random, i % 3 == 0 ? 3'000'000 : 50'000));
    return sizes;
}

TEST(ProtectorTest, MakesTheSameObjectsAsTheCollectiveWayWithinItsMemory) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (const auto* level : {"partner", "xor", "rs:2", "rs:3"})
        for (const size_t nodes : {2u, 3u, 5u, 9u}) {
            SCOPED_TRACE(fmt::format("{} nodes, {}", nodes, level));
            const auto job = job_of(std::vector<int>(nodes, 2));
            const auto sets = make_sets(domains_of(job), scheme(level), 4);
            World world;
            const std::vector<EpochKey> keys = {{1, 3}, {2, 3}, {3, 3}};
            for (const auto& key : keys) world.capture(job, key, uid, sizes_of(random, 2 * nodes), random);
            uint64_t most_buffers = 0;
            const auto results = run_set(world, job, sets, keys, nullptr, &most_buffers);
            EXPECT_LE(most_buffers, protect_buffers);
            std::map<std::string, Bytes> objects;
            for (size_t node = 0; node < nodes; ++node) {
                ASSERT_EQ(results[node].size(), keys.size());
                for (size_t i = 0; i < keys.size(); ++i) {
                    EXPECT_TRUE(results[node][i].status.ok()) << results[node][i].status.to_string();
                    EXPECT_EQ(results[node][i].key, keys[i]);
                    const auto path = protect_path(world.directory(static_cast<int>(node)), World::job_name,
                                                   keys[i], static_cast<int>(node));
                    objects[path] = world.read("m" + std::to_string(node), path);
                    EXPECT_EQ(objects[path].size(), results[node][i].written_bytes);
                }
                EXPECT_EQ(world.files("m" + std::to_string(node), static_cast<int>(node)).size(),
                          2 * keys.size() + keys.size());
            }
            for (const auto& key : keys) ASSERT_TRUE(world.protect(job, sets, key, uid).ok());
            for (const auto& [path, object] : objects) {
                const auto node = path.substr(path.find(".node") + 5, 4);
                EXPECT_TRUE(world.read("m" + std::to_string(std::stoi(node)), path) == object) << path;
            }
            world.lose("m1");
            EXPECT_EQ(
                world.check(world.rebuild(job), job, keys.back(), uid, static_cast<uint32_t>(2 * nodes)), "");
        }
}

TEST(ProtectorTest, NodesThatStartAtAnyTimeAgree) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const auto job = job_of({1, 1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("rs:2"), 4);
    for (int round = 0; round < 10; ++round) {
        World world;
        const std::vector<EpochKey> keys = {{1, 3}, {2, 3}};
        for (const auto& key : keys) world.capture(job, key, uid, sizes_of(random, 4), random);
        std::vector<std::vector<uint64_t>> when(4);
        for (auto& of_node : when) {
            of_node = {below(random, 20), 0};
            of_node[1] = of_node[0] + below(random, 20);
        }
        const auto results = run_set(world, job, sets, keys, [&](Node& node, uint64_t now) {
            for (size_t i = 0; i < keys.size(); ++i)
                if (when[static_cast<size_t>(node.number)][i] == now) start(world, job, node, keys[i]);
        });
        for (const auto& of_node : results)
            for (const auto& result : of_node) EXPECT_TRUE(result.status.ok()) << result.status.to_string();
    }
}

// Otherwise their parts fill the node-local tier. The first ones are under way, and the newest ones wait.
TEST(ProtectorTest, EpochsThatComeTooFastAreLeftOutOnAllNodes) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    for (int round = 0; round < 10; ++round) {
        World world;
        std::vector<EpochKey> keys;
        for (uint64_t epoch = 1; epoch <= 12; ++epoch) keys.push_back({epoch, 3});
        for (const auto& key : keys) world.capture(job, key, uid, {200'000, 70'000, 3'000}, random);
        std::vector<std::vector<uint64_t>> when(3);
        for (auto& of_node : when)
            for (size_t i = 0; i < keys.size(); ++i)
                of_node.push_back((i == 0 ? 0 : of_node.back()) + (round == 0 ? 0 : below(random, 8)));
        const auto results = run_set(world, job, sets, keys, [&](Node& node, uint64_t now) {
            for (size_t i = 0; i < keys.size(); ++i)
                if (when[static_cast<size_t>(node.number)][i] == now) start(world, job, node, keys[i]);
        });
        std::map<EpochKey, std::set<Code>> outcomes;
        for (const auto& of_node : results) {
            ASSERT_EQ(of_node.size(), keys.size());
            for (const auto& result : of_node) outcomes[result.key].insert(result.status.code());
        }
        size_t left_out = 0;
        for (const auto& [key, codes] : outcomes) {
            EXPECT_THAT(codes, testing::SizeIs(1)) << "one outcome on all nodes, " << to_string(key);
            left_out += codes.contains(Code::aborted) ? 1 : 0;
        }
        for (const auto& key : {keys.front(), keys.back()})
            EXPECT_THAT(outcomes[key], testing::ElementsAre(Code::ok)) << to_string(key);
        if (round == 0) {
            EXPECT_EQ(left_out, 8u) << "two are under way, two may wait";
        }
        for (int node = 0; node < 3; ++node)
            EXPECT_EQ(world.files("m" + std::to_string(node), node).size(), 2 * keys.size() - left_out);
    }
}

TEST(ProtectorTest, ANodeThatCannotReadFailsTheEpochForAllAndTheNextGoesOn) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    World world;
    const std::vector<EpochKey> keys = {{1, 3}, {2, 3}};
    for (const auto& key : keys) world.capture(job, key, uid, {2'000'000, 700'000, 30'000}, random);
    world.change("m1", world.path(1, keys[0], 1), [](Bytes& bytes) { bytes.resize(600'000); });
    auto results = run_set(world, job, sets, keys);
    for (size_t node = 0; node < 3; ++node) {
        ASSERT_EQ(results[node].size(), 2u);
        EXPECT_EQ(results[node][0].status.code(), Code::corrupt);
        EXPECT_THAT(results[node][0].status.message(), HasSubstr("node 1: reading"));
        EXPECT_TRUE(results[node][1].status.ok()) << results[node][1].status.to_string();
        EXPECT_EQ(world.files("m" + std::to_string(node), static_cast<int>(node)).size(), 3u);
    }
}

TEST(ProtectorTest, ANodeWithoutSpaceFailsTheEpochForAllAndNoObjectStays) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    World world;
    world.capture(job, {1, 3}, uid, {2'000'000, 700'000, 30'000}, random);
    world.storage("m2")->set_capacity(world.storage("m2")->used_bytes() + 8192);
    for (const auto& of_node : run_set(world, job, make_sets(domains_of(job), scheme("xor"), 8), {{1, 3}})) {
        EXPECT_EQ(of_node[0].status.code(), Code::no_space);
        EXPECT_THAT(of_node[0].status.message(), HasSubstr("node 2"));
    }
    expect_no_objects(world, job);
}

TEST(ProtectorTest, GivingUpAtAnyMomentEndsItOnAllNodes) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    const EpochKey first{1, 3}, second{2, 3};
    for (int round = 0; round < 20; ++round) {
        World world;
        for (const auto& key : {first, second})
            world.capture(job, key, uid, {2'000'000, 700'000, 30'000}, random);
        const auto giver = static_cast<int>(below(random, 3));
        const uint64_t when = below(random, 12);
        const bool never_started = below(random, 3) == 0;
        const auto results = run_set(world, job, sets, {first, second}, [&](Node& node, uint64_t now) {
            if (now == 0) {
                if (node.number != giver || !never_started) start(world, job, node, first);
                start(world, job, node, second);
            }
            if (now == when && node.number == giver) {
                node.protector.give_up(first, Status(Code::aborted, "it is no longer needed"));
                if (never_started) start(world, job, node, first);
            }
        });
        for (const auto& of_node : results)
            for (const auto& result : of_node) {
                if (result.key == second) {
                    EXPECT_TRUE(result.status.ok()) << result.status.to_string();
                } else if (!result.status.ok()) {
                    // A node that has ended it already does not know why any more.
                    EXPECT_THAT(result.status.message(), testing::AnyOf(HasSubstr("it is no longer needed"),
                                                                        HasSubstr("sends no more of it")));
                }
            }
        for (int node = 0; node < 3; ++node)
            EXPECT_THAT(world.files("m" + std::to_string(node), node),
                        testing::Not(testing::Contains(HasSubstr("unfinished"))));
    }
}

TEST(ProtectorTest, PartsOfAnotherRunAreNotMixedIn) {
    Random random(1);
    const auto job = job_of({1, 1});
    World world;
    world.capture(job, {1, 3}, uid, {5000, 7000}, random);
    const auto results = run_set(
        world, job, make_sets(domains_of(job), scheme("partner"), 8), {{1, 3}},
        [&](Node& node, uint64_t now) {
            if (now != 0) return;
            auto work = world.work(job, {1, 3}, uid, node.number);
            work.identity.run_uid += static_cast<uint64_t>(node.number);
            node.protector.start({work.identity, work.parts[static_cast<size_t>(node.number)], work.paths});
        });
    for (const auto& of_node : results)
        EXPECT_THAT(of_node[0].status.message(), HasSubstr("in another run, or elsewhere"));
    expect_no_objects(world, job);
}

TEST(ProtectorTest, ANodeAloneSaysThatNothingProtectsIt) {
    Random random(1);
    const auto job = job_of({2});
    World world;
    world.capture(job, {1, 3}, uid, {5000, 7000}, random);
    const auto results = run_set(world, job, make_sets(domains_of(job), scheme("xor"), 8), {{1, 3}});
    EXPECT_EQ(results[0][0].status.code(), Code::unsupported);
    EXPECT_THAT(results[0][0].status.message(), HasSubstr("no other node"));
    expect_no_objects(world, job);
}

// ---- against a played member --------------------------------------------------------------------

// Node 0 is a protector; the test plays node 1.
struct Played {
    Played() : job(job_of({1, 1})), sets(make_sets(domains_of(job), scheme("partner"), 8)) {
        Random random(1);
        world.capture(job, key, uid, {600'000, 700'000}, random);
        transports = make_in_process_transports(job.hosts);
        protector =
            *Protector::create({world.directory(0), false, 0, {}}, sets, job.topology, 0, *transports[0],
                               *world.storage("m0"), [this] { transports[0]->wake(); });
        const auto work = world.work(job, key, uid, 0);
        protector->start({work.identity, work.parts[0], work.paths});
    }
    void send(const ProtectMessage& message) { protector->handle(1, encode(message)); }
    TableMessage table() {
        const auto work = world.work(job, key, uid, 1);
        return {work.identity, work.parts[1]};
    }
    // What node 0 says next, of that kind.
    template <class Kind>
    std::optional<Kind> next() {
        const auto deadline = std::chrono::steady_clock::now() + 10s;
        while (std::chrono::steady_clock::now() < deadline) {
            (void)protector->step();
            auto message = transports[1]->poll();
            if (!message.ok() || !message->has_value()) {
                transports[0]->wait(1ms, true);
                continue;
            }
            const auto decoded = decode_protect_message((*message)->bytes);
            if (!decoded.ok()) return std::nullopt;
            if (const auto* kind = std::get_if<Kind>(&*decoded)) return *kind;
        }
        return std::nullopt;
    }
    Status result() {
        const auto deadline = std::chrono::steady_clock::now() + 10s;
        while (std::chrono::steady_clock::now() < deadline) {
            (void)protector->step();
            for (auto& found : protector->take_results()) return found.status;
            transports[0]->wait(1ms, true);
        }
        return Status(Code::timeout, "no result");
    }

    static constexpr EpochKey key{1, 3};
    World world;
    const JobShape job;
    const Sets sets;
    std::vector<std::unique_ptr<Transport>> transports;
    std::unique_ptr<Protector> protector;
};

TEST(ProtectorTest, AsksBeyondThePartAreRefused) {
    for (const auto& [offset, bytes] :
         std::vector<std::pair<uint64_t, uint64_t>>{{0, 0},
                                                    {0, protect_buffer_bytes + 1},
                                                    {1'000'000, 1},
                                                    {UINT64_MAX, 2},
                                                    {600'000, protect_buffer_bytes}}) {
        Played played;
        played.send(AskMessage{Played::key, 7, offset, bytes});
        const auto refused = played.next<RefusedMessage>();
        ASSERT_TRUE(refused.has_value());
        EXPECT_EQ(refused->number, 7u);
    }
    Played played;
    played.send(AskMessage{{9, 3}, 8, 0, 100});  // of an epoch that is not known
    EXPECT_TRUE(played.next<RefusedMessage>().has_value());
}

TEST(ProtectorTest, AnswersToNoAskAndTablesThatCannotBeEndIt) {
    {
        Played played;
        played.send(played.table());
        ASSERT_TRUE(played.next<AskMessage>().has_value());
        played.send(RefusedMessage{Played::key, 99, {}});
        EXPECT_THAT(played.next<UnprotectedMessage>()->why.message(), HasSubstr("which was not sent to it"));
    }
    {
        Played played;
        auto table = played.table();
        table.parts[0].rank = 0;  // node 0 has that one
        played.send(table);
        EXPECT_THAT(played.result().message(), HasSubstr("listed for two nodes"));
    }
    {
        Played played;
        auto table = played.table();
        table.parts[0].rank = 2;  // of 2
        played.send(table);
        EXPECT_EQ(played.protector->abandoned().code(), Code::transport);
        EXPECT_EQ(played.result().code(), Code::transport);
    }
}

TEST(ProtectorTest, ARefusalEndsItAndNothingStays) {
    Played played;
    played.send(played.table());
    // All that was asked is refused; nobody waits for ever.
    std::vector<uint32_t> numbers;
    while (numbers.size() < 2) numbers.push_back(played.next<AskMessage>()->number);
    for (const uint32_t number : numbers) played.send(RefusedMessage{Played::key, number, {}});
    EXPECT_THAT(played.result().message(), HasSubstr("node 1 sends no more of it"));
    EXPECT_THAT(played.world.files("m0", 0), testing::Each(testing::EndsWith(".capture")));
}

TEST(ProtectorTest, DamagedMessagesNeverCrash) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    Played shape;
    const ProtectMessage messages[] = {shape.table(),
                                       AskMessage{Played::key, 1, 0, 100},
                                       DataMessage{Played::key, 1},
                                       RefusedMessage{Played::key, 1, {}},
                                       DoneMessage{Played::key},
                                       UnprotectedMessage{Played::key, Status(Code::aborted, "no")}};
    for (int round = 0; round < 300; ++round) {
        Bytes bytes = encode(messages[below(random, std::size(messages))]);
        ASSERT_TRUE(decode_protect_message(bytes).ok());
        const auto changes = 1 + below(random, 3);
        for (uint64_t i = 0; i < changes; ++i)
            bytes[1 + below(random, bytes.size() - 1)] = static_cast<std::byte>(random());
        if (below(random, 3) == 0) bytes.resize(1 + below(random, bytes.size()));
        const auto decoded = decode_protect_message(bytes);
        if (!decoded.ok()) {
            EXPECT_EQ(decoded.status().code(), Code::transport);
        } else {
            EXPECT_TRUE(encode(*decoded) == bytes);
        }
    }
}

TEST(ProtectorTest, ABrokenTransportEndsItHereAndMemoryThatMayBeWrittenStays) {
    Played played;
    played.send(played.table());
    const auto ask = played.next<AskMessage>();
    ASSERT_TRUE(ask.has_value());
    played.send(DataMessage{Played::key, ask->number});  // and nothing follows
    played.protector->abandon(Status(Code::transport, "the network is gone"));
    EXPECT_THAT(played.result().message(), HasSubstr("the network is gone"));
    const auto work = played.world.work(played.job, Played::key, uid, 0);
    played.protector->start({work.identity, work.parts[0], work.paths});
    EXPECT_FALSE(played.result().ok());
    played.protector.reset();
    EXPECT_THAT(played.world.files("m0", 0), testing::Each(testing::EndsWith(".capture")));
}

}  // namespace
}  // namespace tailrace::internal
