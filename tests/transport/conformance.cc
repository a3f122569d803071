#include "transport/conformance.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <new>

#include "threads/worker.h"

#define EXPECT_THAT_HOLDS(condition) witness.expect((condition), __LINE__, #condition)

namespace tailrace::internal::conformance {

bool Witness::expect(bool holds, int line, const std::string& what) {
    if (!holds) failures_.push_back(fmt::format("conformance.cc:{}: {}", line, what));
    return holds;
}

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;
using Clock = SteadyClock;

constexpr microseconds longest_wait(10000);

// Bytes that tell who sent them, which they are, and where they belong.
Bytes pattern(uint64_t seed, size_t size) {
    Bytes bytes(size);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (std::byte& byte : bytes) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<std::byte>(state >> 56);
    }
    return bytes;
}

// The next message from anyone, or nothing when none comes.
std::optional<Message> next_message(Transport& transport) {
    const auto deadline = Clock::now() + patience;
    while (Clock::now() < deadline) {
        auto message = transport.poll();
        if (!message.ok()) return std::nullopt;
        if (*message) return std::move(**message);
        transport.wait(longest_wait, false);
    }
    return std::nullopt;
}

bool until_delivered(Transport& transport) {
    const auto deadline = Clock::now() + patience;
    while (Clock::now() < deadline) {
        auto delivered = transport.posts_delivered();
        if (!delivered.ok()) return false;
        if (*delivered) return true;
        transport.wait(longest_wait, true);
    }
    return false;
}

// finish() of a transfer that should move `bytes`.
bool moves(Transport& transport, Transfer& transfer, uint64_t bytes) {
    std::vector<Message> messages;
    auto moved = finish(transport, transfer, messages);
    return moved.ok() && *moved == bytes && messages.empty();
}

int next_rank(const Transport& transport) {
    return (transport.rank() + 1) % transport.size();
}
int previous_rank(const Transport& transport) {
    return (transport.rank() + transport.size() - 1) % transport.size();
}
uint64_t seed_of(int rank, uint64_t number) {
    return static_cast<uint64_t>(rank) * 1000003 + number;
}

// ---- messages ----------------------------------------------------------------------------------------

void messages_between_two_ranks_keep_their_order(Transport& transport, Witness& witness) {
    constexpr size_t count = 200;
    const int source = previous_rank(transport);
    for (size_t i = 0; i < count; ++i) {
        Bytes message = pattern(seed_of(transport.rank(), i), i * 17 % 3001);
        EXPECT_THAT_HOLDS(transport.post(next_rank(transport), message).ok());
        std::fill(message.begin(), message.end(), std::byte{0});  // post() has copied it
    }
    for (size_t i = 0; i < count; ++i) {
        auto message = next_message(transport);
        if (!EXPECT_THAT_HOLDS(message.has_value())) return;
        EXPECT_THAT_HOLDS(message->source == source);
        EXPECT_THAT_HOLDS(message->bytes == pattern(seed_of(source, i), i * 17 % 3001));
    }
    EXPECT_THAT_HOLDS(until_delivered(transport));
}

void many_ranks_may_post_to_one(Transport& transport, Witness& witness) {
    constexpr size_t count = 50;
    for (size_t i = 0; i < count; ++i)
        EXPECT_THAT_HOLDS(transport.post(0, pattern(seed_of(transport.rank(), i), 40 + i)).ok());
    if (transport.rank() == 0) {
        std::map<int, size_t> seen;
        for (size_t i = 0; i < count * static_cast<size_t>(transport.size()); ++i) {
            auto message = next_message(transport);
            if (!EXPECT_THAT_HOLDS(message.has_value())) return;
            const size_t number = seen[message->source]++;
            EXPECT_THAT_HOLDS(message->bytes == pattern(seed_of(message->source, number), 40 + number));
        }
        for (auto [source, number] : seen) EXPECT_THAT_HOLDS(number == count);
    }
    EXPECT_THAT_HOLDS(until_delivered(transport));
}

void large_messages_arrive_in_both_directions_at_once(Transport& transport, Witness& witness) {
    constexpr size_t size = (size_t{3} << 20) + 5;
    EXPECT_THAT_HOLDS(transport.post(next_rank(transport), pattern(seed_of(transport.rank(), 1), size)).ok());
    EXPECT_THAT_HOLDS(transport.post(next_rank(transport), pattern(seed_of(transport.rank(), 2), 3)).ok());
    const int source = previous_rank(transport);
    for (size_t number : {1, 2}) {
        auto message = next_message(transport);
        if (!EXPECT_THAT_HOLDS(message.has_value())) return;
        EXPECT_THAT_HOLDS(message->bytes == pattern(seed_of(source, number), number == 1 ? size : 3));
    }
    EXPECT_THAT_HOLDS(until_delivered(transport));
}

void ranks_that_do_not_exist_are_refused(Transport& transport, Witness& witness) {
    Bytes memory(8);
    for (int rank : {-1, transport.size(), transport.size() + 100}) {
        EXPECT_THAT_HOLDS(transport.post(rank, memory).code() == Code::invalid_argument);
        EXPECT_THAT_HOLDS(transport.start_send(rank, 1, memory).status().code() == Code::invalid_argument);
        EXPECT_THAT_HOLDS(transport.start_receive(rank, 1, memory).status().code() == Code::invalid_argument);
        EXPECT_THAT_HOLDS(transport.broadcast(rank, memory).status().code() == Code::invalid_argument);
    }
}

// ---- data --------------------------------------------------------------------------------------------

void transfers_of_any_size_move_every_byte(Transport& transport, Witness& witness) {
    const int source = previous_rank(transport);
    uint32_t tag = 0;
    for (size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{4097}, (size_t{1} << 20) + 1,
                        size_t{8} << 20, (size_t{8} << 20) + 4099}) {
        ++tag;
        const Bytes sent = pattern(seed_of(transport.rank(), size), size);
        Bytes received(size + 7, std::byte{0x5A});
        auto send = transport.start_send(next_rank(transport), tag, sent);
        auto receive = transport.start_receive(source, tag, std::span(received).first(size));
        if (!EXPECT_THAT_HOLDS(send.ok() && receive.ok())) return;
        EXPECT_THAT_HOLDS(moves(transport, **receive, size));
        EXPECT_THAT_HOLDS(moves(transport, **send, size));
        EXPECT_THAT_HOLDS(moves(transport, **receive, size));  // and the same at every later call
        EXPECT_THAT_HOLDS(std::all_of(received.begin() + static_cast<ptrdiff_t>(size), received.end(),
                                      [](std::byte byte) { return byte == std::byte{0x5A}; }));
        received.resize(size);
        EXPECT_THAT_HOLDS(received == pattern(seed_of(source, size), size));
    }
}

void a_receive_may_have_more_memory_than_is_sent(Transport& transport, Witness& witness) {
    const int source = previous_rank(transport);
    for (size_t size : {size_t{0}, size_t{100}, size_t{3} << 20}) {
        const Bytes sent = pattern(seed_of(transport.rank(), size), size);
        Bytes received(size_t{5} << 20);
        auto receive = transport.start_receive(source, 7, received);
        auto send = transport.start_send(next_rank(transport), 7, sent);
        if (!EXPECT_THAT_HOLDS(send.ok() && receive.ok())) return;
        EXPECT_THAT_HOLDS(moves(transport, **send, size));
        EXPECT_THAT_HOLDS(moves(transport, **receive, size));
        received.resize(size);
        EXPECT_THAT_HOLDS(received == pattern(seed_of(source, size), size));
    }
}

void a_receive_with_too_little_memory_fails(Transport& transport, Witness& witness) {
    const int source = previous_rank(transport);
    // Small enough to leave the sender at once on every transport: what becomes of a large one that nobody
    // can take is the transport's business.
    const Bytes sent = pattern(seed_of(transport.rank(), 3), 64);
    Bytes received(64, std::byte{0x33});
    auto receive = transport.start_receive(source, 3, std::span(received).first(63));
    auto send = transport.start_send(next_rank(transport), 3, sent);
    if (!EXPECT_THAT_HOLDS(send.ok() && receive.ok())) return;
    std::vector<Message> messages;
    auto end = finish(transport, **receive, messages);
    EXPECT_THAT_HOLDS(!end.ok() && end.status().code() == Code::transport);
    EXPECT_THAT_HOLDS((*receive)->test().status().code() == Code::transport);  // and stays failed
    EXPECT_THAT_HOLDS(received[63] == std::byte{0x33});
    (void)finish(transport, **send, messages);

    // The ranks can go on.
    receive = transport.start_receive(source, 3, received);
    send = transport.start_send(next_rank(transport), 3, sent);
    if (!EXPECT_THAT_HOLDS(send.ok() && receive.ok())) return;
    EXPECT_THAT_HOLDS(moves(transport, **receive, 64));
    EXPECT_THAT_HOLDS(moves(transport, **send, 64));
    EXPECT_THAT_HOLDS(received == pattern(seed_of(source, 3), 64));
}

void transfers_are_matched_by_tag(Transport& transport, Witness& witness) {
    constexpr size_t size = 300 * 1000;
    const std::vector<uint32_t> tags = {1, 2, 30000, 0};
    const int source = previous_rank(transport);
    std::vector<Bytes> sent, received;
    std::vector<std::unique_ptr<Transfer>> sends, receives;
    for (uint32_t tag : tags) {
        sent.push_back(pattern(seed_of(transport.rank(), tag), size));
        received.emplace_back(size);
        auto send = transport.start_send(next_rank(transport), tag, sent.back());
        if (!EXPECT_THAT_HOLDS(send.ok())) return;
        sends.push_back(std::move(send).value());
    }
    for (size_t i = tags.size(); i-- > 0;) {
        auto receive = transport.start_receive(source, tags[i], received[i]);
        if (!EXPECT_THAT_HOLDS(receive.ok())) return;
        receives.push_back(std::move(receive).value());
    }
    for (auto& transfer : receives) EXPECT_THAT_HOLDS(moves(transport, *transfer, size));
    for (auto& transfer : sends) EXPECT_THAT_HOLDS(moves(transport, *transfer, size));
    for (size_t i = 0; i < tags.size(); ++i)
        EXPECT_THAT_HOLDS(received[i] == pattern(seed_of(source, tags[i]), size));
}

void transfers_with_one_tag_keep_their_order(Transport& transport, Witness& witness) {
    constexpr size_t count = 12;
    const int source = previous_rank(transport);
    std::vector<Bytes> sent(count), received(count);
    std::vector<std::unique_ptr<Transfer>> transfers;
    // Large and small ones in turn, which transports move in different ways.
    auto size_of = [](size_t i) { return i % 2 == 0 ? size_t{200} : size_t{400 * 1000}; };
    for (size_t i = 0; i < count; ++i) {
        sent[i] = pattern(seed_of(transport.rank(), i), size_of(i));
        received[i].resize(size_of(i));
        auto receive = transport.start_receive(source, 9, received[i]);
        auto send = transport.start_send(next_rank(transport), 9, sent[i]);
        if (!EXPECT_THAT_HOLDS(send.ok() && receive.ok())) return;
        transfers.push_back(std::move(receive).value());
        transfers.push_back(std::move(send).value());
    }
    for (size_t i = 0; i < transfers.size(); ++i)
        EXPECT_THAT_HOLDS(moves(transport, *transfers[i], size_of(i / 2)));
    for (size_t i = 0; i < count; ++i)
        EXPECT_THAT_HOLDS(received[i] == pattern(seed_of(source, i), size_of(i)));
}

// Every rank sends chunks to rank 0 against credits that come as messages: the shape of a flush.
void messages_and_transfers_do_not_disturb_each_other(Transport& transport, Witness& witness) {
    constexpr uint32_t chunks = 6;
    constexpr size_t size = 500 * 1000 + 3;
    const int rank = transport.rank();
    if (rank != 0) {
        std::vector<Message> credits;  // a next one may come before this rank has seen its chunk leave
        for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
            if (credits.size() <= chunk) {
                auto credit = next_message(transport);
                if (!EXPECT_THAT_HOLDS(credit.has_value())) return;
                credits.push_back(std::move(*credit));
            }
            EXPECT_THAT_HOLDS(credits[chunk].source == 0 && credits[chunk].bytes.size() == chunk + 1);
            const Bytes sent = pattern(seed_of(rank, chunk), size);
            auto send = transport.start_send(0, chunk, sent);
            if (!EXPECT_THAT_HOLDS(send.ok())) return;
            EXPECT_THAT_HOLDS(transport.post(0, Bytes(2)).ok());  // a word aside, while the chunk is moving
            auto moved = finish(transport, **send, credits);
            EXPECT_THAT_HOLDS(moved.ok() && *moved == size);
        }
        EXPECT_THAT_HOLDS(credits.size() == chunks);
        EXPECT_THAT_HOLDS(until_delivered(transport));
        return;
    }
    size_t words = 0;
    Bytes received(size);
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        for (int source = 1; source < transport.size(); ++source)
            EXPECT_THAT_HOLDS(transport.post(source, Bytes(chunk + 1)).ok());
        for (int source = 1; source < transport.size(); ++source) {
            auto receive = transport.start_receive(source, chunk, received);
            if (!EXPECT_THAT_HOLDS(receive.ok())) return;
            std::vector<Message> messages;
            auto moved = finish(transport, **receive, messages);
            EXPECT_THAT_HOLDS(moved.ok() && *moved == size);
            EXPECT_THAT_HOLDS(received == pattern(seed_of(source, chunk), size));
            words += messages.size();
        }
    }
    for (; words < chunks * static_cast<size_t>(transport.size() - 1); ++words)
        if (!EXPECT_THAT_HOLDS(next_message(transport).has_value())) return;
    EXPECT_THAT_HOLDS(until_delivered(transport));
}

// ---- collectives -------------------------------------------------------------------------------------

void allgather_brings_unequal_parts_to_all(Transport& transport, Witness& witness) {
    auto size_of = [](int rank, size_t round) {
        const auto number = static_cast<size_t>(rank);
        switch (round) {
            case 0:
                return size_t{0};
            case 1:
                return number * 1000;
            case 2:
                return number % 3 == 1 ? 0 : 70 * 1000 + number;
            default:
                return 55 + number;  // some end where a second step becomes necessary, or just behind
        }
    };
    for (size_t round = 0; round < 4; ++round) {
        auto all =
            transport.allgather(pattern(seed_of(transport.rank(), round), size_of(transport.rank(), round)));
        if (!EXPECT_THAT_HOLDS(all.ok())) return;
        EXPECT_THAT_HOLDS(all->size() == static_cast<size_t>(transport.size()));
        for (int rank = 0; rank < transport.size(); ++rank)
            EXPECT_THAT_HOLDS((*all)[static_cast<size_t>(rank)] ==
                              pattern(seed_of(rank, round), size_of(rank, round)));
    }
}

void broadcast_brings_the_roots_bytes_to_all(Transport& transport, Witness& witness) {
    for (int root = 0; root < std::min(transport.size(), 5); ++root) {
        for (size_t size : {0, 1, 1015, 1016, 1017, 1000 * 1000 + 1}) {
            const bool mine_counts = root == transport.rank();
            // What others pass is not looked at.
            auto copy =
                transport.broadcast(root, mine_counts ? pattern(seed_of(root, size), size) : Bytes(3));
            EXPECT_THAT_HOLDS(copy.ok() && *copy == pattern(seed_of(root, size), size));
        }
    }
}

void agree_names_the_lowest_rank_that_failed(Transport& transport, Witness& witness) {
    EXPECT_THAT_HOLDS(agree(transport, Status()).ok());
    const int last = transport.size() - 1;
    Status one =
        agree(transport, transport.rank() == last ? Status(Code::no_space, "the tier is full") : Status());
    EXPECT_THAT_HOLDS(one.code() == Code::no_space);
    EXPECT_THAT_HOLDS(one.message().find("the tier is full") != std::string::npos);
    if (last == 0) return;
    EXPECT_THAT_HOLDS(one.message().find(fmt::format("rank {}", last)) != std::string::npos);
    Status many = agree(transport, transport.rank() == 0
                                       ? Status()
                                       : Status(transport.rank() == 1 ? Code::corrupt : Code::busy, "no"));
    EXPECT_THAT_HOLDS(many.code() == Code::corrupt);
    EXPECT_THAT_HOLDS(many.message().find("rank 1: no") != std::string::npos);
}

void collectives_may_run_beside_messages_and_transfers(Transport& transport, Witness& witness) {
    constexpr int rounds = 20;
    constexpr size_t size = 200 * 1000;
    const int source = previous_rank(transport);
    std::atomic<int> right{0};
    Worker program("program", {}, [&](const std::stop_token&) {
        for (int round = 0; round < rounds; ++round) {
            auto all = transport.allgather(pattern(seed_of(transport.rank(), 77), 5000));
            if (all.ok() && all->back() == pattern(seed_of(transport.size() - 1, 77), 5000)) ++right;
        }
    });
    std::vector<Message> messages;
    for (uint32_t round = 0; round < rounds; ++round) {
        const Bytes sent = pattern(seed_of(transport.rank(), round), size);
        Bytes received(size);
        EXPECT_THAT_HOLDS(transport.post(next_rank(transport), Bytes(round)).ok());
        auto receive = transport.start_receive(source, round, received);
        auto send = transport.start_send(next_rank(transport), round, sent);
        if (!EXPECT_THAT_HOLDS(send.ok() && receive.ok())) break;
        for (Transfer* transfer : {receive->get(), send->get()}) {
            auto moved = finish(transport, *transfer, messages);
            EXPECT_THAT_HOLDS(moved.ok() && *moved == size);
        }
        EXPECT_THAT_HOLDS(received == pattern(seed_of(source, round), size));
    }
    while (messages.size() < rounds) {
        auto message = next_message(transport);
        if (!EXPECT_THAT_HOLDS(message.has_value())) break;
        messages.push_back(std::move(*message));
    }
    EXPECT_THAT_HOLDS(messages.size() == rounds);
    for (size_t i = 0; i < messages.size(); ++i)
        EXPECT_THAT_HOLDS(messages[i].source == source && messages[i].bytes.size() == i);
    program.join();
    EXPECT_THAT_HOLDS(right == rounds);
    EXPECT_THAT_HOLDS(until_delivered(transport));
}

// ---- waiting -----------------------------------------------------------------------------------------

void wake_ends_a_wait_even_before_it_began(Transport& transport, Witness& witness) {
    const auto begin = Clock::now();
    transport.wake();
    transport.wait(patience, false);
    Worker other("other", {}, [&](const std::stop_token&) {
        sleep_for(milliseconds(20));
        transport.wake();
    });
    transport.wait(patience, false);
    other.join();
    EXPECT_THAT_HOLDS(Clock::now() - begin < patience);
}

void wait_returns_when_its_time_is_over(Transport& transport, Witness& witness) {
    const auto begin = Clock::now();
    for (bool busy : {false, true}) {
        transport.wait(microseconds(0), busy);
        transport.wait(microseconds(-5), busy);
        transport.wait(milliseconds(3), busy);
    }
    EXPECT_THAT_HOLDS(Clock::now() - begin < patience);
}

}  // namespace

Result<uint64_t> finish(Transport& transport, Transfer& transfer, std::vector<Message>& messages) {
    const auto deadline = Clock::now() + patience;
    while (Clock::now() < deadline) {
        TAILRACE_ASSIGN(auto moved, transfer.test());
        if (moved) return *moved;
        TAILRACE_ASSIGN(auto message, transport.poll());
        if (message)
            messages.push_back(std::move(*message));
        else
            transport.wait(longest_wait, true);
    }
    return Status(Code::timeout, "the transfer does not end");
}

void exchange_moves_pieces_between_any_ranks_in_order(Transport& transport, Witness& witness) {
    const int size = transport.size(), rank = transport.rank();
    // Every rank, itself included, gets two pieces from every other; the last rank sends nothing to rank 0.
    const auto sends_to = [&](int from, int to) { return size == 1 || from != size - 1 || to != 0; };
    for (size_t round = 0; round < 3; ++round) {
        const size_t bytes = round == 0 ? 0 : round == 1 ? 1000 : 300 * 1000;
        std::vector<Bytes> sent, received(2 * static_cast<size_t>(size));
        std::vector<Transport::Outgoing> sends;
        std::vector<Transport::Incoming> receives;
        sent.reserve(received.size());
        for (int peer = 0; peer < size; ++peer)
            for (size_t piece = 0; piece < 2; ++piece) {
                if (sends_to(rank, peer)) {
                    sent.push_back(pattern(seed_of(rank, round) + static_cast<uint64_t>(peer) + piece,
                                           bytes + static_cast<size_t>(rank) + piece));
                    sends.push_back({peer, sent.back()});
                }
                auto& target = received[2 * static_cast<size_t>(peer) + piece];
                target.resize(bytes + static_cast<size_t>(peer) + piece);
                if (sends_to(peer, rank)) receives.push_back({peer, target});
            }
        if (!EXPECT_THAT_HOLDS(transport.exchange(sends, receives).ok())) return;
        for (int peer = 0; peer < size; ++peer)
            for (size_t piece = 0; piece < 2 && sends_to(peer, rank); ++piece)
                EXPECT_THAT_HOLDS(received[2 * static_cast<size_t>(peer) + piece] ==
                                  pattern(seed_of(peer, round) + static_cast<uint64_t>(rank) + piece,
                                          bytes + static_cast<size_t>(peer) + piece));
    }
    EXPECT_THAT_HOLDS(transport.exchange({}, {}).ok());
}

void exchange_notices_another_length(Transport& transport, Witness& witness) {
    const Bytes sent(100);
    Bytes received(101);
    const Transport::Outgoing send{transport.rank(), sent};
    const Transport::Incoming receive{transport.rank(), received};
    EXPECT_THAT_HOLDS(transport.exchange({&send, 1}, {&receive, 1}).code() == Code::invalid_argument);
}

void a_rank_that_leaves_a_common_call_is_heard(Transport& transport, Witness& witness) {
    const int last = transport.size() - 1;
    const std::vector<std::function<Status()>> collectives = {
        [&] { return transport.allgather({}).status(); }, [&] { return transport.broadcast(0, {}).status(); },
        [&] { return transport.exchange({}, {}); }, [] { return Status(); },  // it leaves at the very end
    };
    for (const auto& collective : collectives) {
        const Status ended = together(transport, [&]() -> Status {
            EXPECT_THAT_HOLDS(transport.allgather({}).ok());
            if (transport.rank() == last) throw std::bad_alloc();
            const Status met = collective();
            EXPECT_THAT_HOLDS(met.ok() == (&collective == &collectives.back()));
            // Those that go on nevertheless meet nobody any more.
            return met.ok() ? met : transport.allgather({}).status();
        });
        EXPECT_THAT_HOLDS(ended.code() == Code::out_of_memory);
        EXPECT_THAT_HOLDS(transport.rank() == last ||
                          ended.message().starts_with(fmt::format("rank {}: ", last)));
        EXPECT_THAT_HOLDS(transport.allgather({}).ok());
    }
    // Of two, one within the other, it leaves the inner one alone, or both.
    for (const bool leaves_both : {false, true}) {
        Status inner;
        const Status outer = together(transport, [&]() -> Status {
            if (transport.rank() == last && leaves_both) throw std::bad_alloc();
            inner = together(transport, [&]() -> Status {
                if (transport.rank() == last) throw std::bad_alloc();
                return transport.allgather({}).status();
            });
            return transport.allgather({}).status();
        });
        const bool was_in_inner = !leaves_both || transport.rank() != last;
        EXPECT_THAT_HOLDS(inner.code() == (was_in_inner ? Code::out_of_memory : Code::ok));
        EXPECT_THAT_HOLDS(outer.code() == (leaves_both ? Code::out_of_memory : Code::ok));
        EXPECT_THAT_HOLDS(transport.allgather({}).ok());
    }
    const auto value = together(transport, [&]() -> Result<int> {
        TAILRACE_TRY(transport.allgather({}).status());
        return 7;
    });
    EXPECT_THAT_HOLDS(value.ok() && *value == 7);
}

const std::vector<Claim>& claims() {
    static const std::vector<Claim> all = {
        {"AllgatherBringsUnequalPartsToAll", allgather_brings_unequal_parts_to_all},
        {"BroadcastBringsTheRootsBytesToAll", broadcast_brings_the_roots_bytes_to_all},
        {"AgreeNamesTheLowestRankThatFailed", agree_names_the_lowest_rank_that_failed},
        {"ExchangeMovesPiecesBetweenAnyRanksInOrder", exchange_moves_pieces_between_any_ranks_in_order},
        {"ExchangeNoticesAnotherLength", exchange_notices_another_length},
        {"ARankThatLeavesACommonCallIsHeard", a_rank_that_leaves_a_common_call_is_heard},
        {"RanksThatDoNotExistAreRefused", ranks_that_do_not_exist_are_refused},
        {"MessagesBetweenTwoRanksKeepTheirOrder", messages_between_two_ranks_keep_their_order},
        {"ManyRanksMayPostToOne", many_ranks_may_post_to_one},
        {"LargeMessagesArriveInBothDirectionsAtOnce", large_messages_arrive_in_both_directions_at_once},
        {"TransfersOfAnySizeMoveEveryByte", transfers_of_any_size_move_every_byte},
        {"AReceiveMayHaveMoreMemoryThanIsSent", a_receive_may_have_more_memory_than_is_sent},
        {"AReceiveWithTooLittleMemoryFails", a_receive_with_too_little_memory_fails},
        {"TransfersAreMatchedByTag", transfers_are_matched_by_tag},
        {"TransfersWithOneTagKeepTheirOrder", transfers_with_one_tag_keep_their_order},
        {"MessagesAndTransfersDoNotDisturbEachOther", messages_and_transfers_do_not_disturb_each_other},
        {"CollectivesMayRunBesideMessagesAndTransfers", collectives_may_run_beside_messages_and_transfers},
        {"WakeEndsAWaitEvenBeforeItBegan", wake_ends_a_wait_even_before_it_began},
        {"WaitReturnsWhenItsTimeIsOver", wait_returns_when_its_time_is_over},
    };
    return all;
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const Claim& claim : claims())
        for (size_t ranks : {1, 2, 3, 8}) all.push_back({&claim, ranks});
    return all;
}

std::string name_of(const Case& tried) {
    return tried.claim->name + "With" + std::to_string(tried.ranks) + "Ranks";
}

}  // namespace tailrace::internal::conformance
