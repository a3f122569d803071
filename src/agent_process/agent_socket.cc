#include "agent_process/agent_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "storage/own_directories.h"
#include "storage/storage.h"

namespace tailrace::internal {

namespace {

constexpr const char* socket_name = "socket";
// All ranks of a node may come at once.
constexpr int max_waiting_clients = 1024;
constexpr size_t max_descriptors = 4;

// The name of a socket has at most 107 bytes, which many paths are longer than. By way of the open
// directory it is short, and leads nowhere else.
sockaddr_un address_in(const Descriptor& directory) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const auto path = fmt::format("/proc/self/fd/{}/{}", directory.get(), socket_name);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

Result<Descriptor> new_socket() {
    Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!made.valid()) return errno_status(errno, "making a socket for the agent");
    return made;
}

Status check_peer(const Descriptor& socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return errno_status(errno, "asking who is at the other end of the agent's socket");
    if (peer.uid == geteuid()) return {};
    return Status(
        Code::failed_state,
        fmt::format("{}, at the other end of the agent's socket, is not trusted", user_text(peer.uid)));
}

Status gone() {
    return Status(Code::transport, "the other end of the agent's socket is gone");
}

}  // namespace

std::string agent_directory(const std::string& local_dir) {
    return join_path(local_dir, "agent");
}

int AgentConnection::process() const {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

Result<bool> AgentConnection::send(std::span<const std::byte> bytes, std::span<const int> descriptors,
                                   int flags) {
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * max_descriptors)> space{};
    msghdr packet{};
    packet.msg_iov = &piece;
    packet.msg_iovlen = 1;
    if (!descriptors.empty()) {
        if (descriptors.size() > max_descriptors)
            return Status(Code::invalid_argument, "too many descriptors for the agent's socket");
        packet.msg_control = space.data();
        packet.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* header = CMSG_FIRSTHDR(&packet);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
    }
    while (sendmsg(socket_.get(), &packet, MSG_NOSIGNAL | flags) < 0) {
        if (errno == EINTR) continue;
        const int error = errno;
        // The kernel may have no memory for a message now.
        const bool no_room = error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
        if ((flags & MSG_DONTWAIT) != 0 && no_room) return false;
        // Both ends must learn that a message is missing.
        (void)shutdown(socket_.get(), SHUT_RDWR);
        if (error == EPIPE || error == ECONNRESET) return gone();
        return errno_status(error, "sending to the other end of the agent's socket");
    }
    return true;
}

Status AgentConnection::send(const AgentProcessMessage& message, std::span<const int> descriptors) {
    return send(encode(message), descriptors, 0).status();
}

Result<bool> AgentConnection::try_send(const AgentProcessMessage& message, std::span<const int> descriptors) {
    return send(encode(message), descriptors, MSG_DONTWAIT);
}

// Descriptors that come are ours from then on, whatever becomes of the message.
Result<size_t> AgentConnection::receive_packet(std::span<std::byte> bytes) {
    iovec piece{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * max_descriptors)> space{};
    msghdr packet{};
    packet.msg_iov = &piece;
    packet.msg_iovlen = 1;
    packet.msg_control = space.data();
    packet.msg_controllen = space.size();
    ssize_t got = 0;
    // The kernel says once that the other end has gone without reading everything (ECONNRESET). What that
    // one had sent before comes after it, and counts: a program's last saves may be among it.
    while ((got = recvmsg(socket_.get(), &packet, MSG_TRUNC | MSG_CMSG_CLOEXEC)) < 0 &&
           (errno == EINTR || errno == ECONNRESET)) {
    }
    if (got < 0) return gone();
    // Also those of an empty message are open here from now on.
    descriptors_.clear();
    for (cmsghdr* header = CMSG_FIRSTHDR(&packet); header != nullptr; header = CMSG_NXTHDR(&packet, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int number = -1;
            std::memcpy(&number, CMSG_DATA(header) + i * sizeof(int), sizeof number);
            descriptors_.emplace_back(number);
        }
    }
    if (got == 0) return gone();
    if (static_cast<size_t>(got) > bytes.size())
        return Status(Code::transport,
                      fmt::format("a message of {} bytes at the agent's socket is too long", got));
    return static_cast<size_t>(got);
}

Result<std::optional<AgentProcessMessage>> AgentConnection::receive(std::chrono::milliseconds longest) {
    const auto deadline = SteadyClock::now() + longest;
    while (true) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
        pollfd waiting{socket_.get(), POLLIN, 0};
        const int ready = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) return errno_status(errno, "waiting at the agent's socket");
        if (ready == 0) return std::optional<AgentProcessMessage>();
        std::vector<std::byte> bytes(max_agent_message_bytes);
        TAILRACE_ASSIGN(const size_t got, receive_packet(bytes));
        bytes.resize(got);
        TAILRACE_ASSIGN(auto message, decode_agent_process_message(bytes));
        return std::optional(std::move(message));
    }
}

Result<Descriptor> listen_for_clients(const std::string& local_dir) {
    OwnDirectories own(local_dir);
    TAILRACE_ASSIGN(const auto directory, own.open(agent_directory(local_dir), true));
    if (unlinkat(directory->get(), socket_name, 0) != 0 && errno != ENOENT) {
        const bool is_directory = errno == EISDIR;
        const auto failed = path_error(errno, "removing", join_path(agent_directory(local_dir), socket_name));
        return is_directory ? failed.with_context(
                                  "a directory stands where the agent's socket should be; move it away")
                            : failed;
    }
    TAILRACE_ASSIGN(auto listening, new_socket());
    const auto address = address_in(*directory);
    if (bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listening.get(), max_waiting_clients) != 0)
        return path_error(errno, "listening at", join_path(agent_directory(local_dir), socket_name));
    return listening;
}

Result<std::optional<AgentConnection>> accept_client(const Descriptor& listening) {
    Descriptor client(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client.valid()) {
        if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN)
            return std::optional<AgentConnection>();
        const Status failed = errno_status(errno, "accepting a client of the agent");
        const bool for_now = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        return for_now ? Status(Code::busy, failed.message()) : failed;
    }
    if (const Status peer = check_peer(client); !peer.ok()) {
        log(LogLevel::warning, "a client of the agent is turned away: {}", peer.message());
        return std::optional<AgentConnection>();
    }
    return std::optional<AgentConnection>(AgentConnection(std::move(client)));
}

Result<AgentConnection> connect_to_agent(const std::string& local_dir) {
    const Status none(Code::not_found, fmt::format("no agent serves {}", local_dir));
    OwnDirectories own(local_dir);
    const auto directory = own.open(agent_directory(local_dir), false);
    if (directory.status().code() == Code::not_found) return none;
    TAILRACE_TRY(directory.status());
    TAILRACE_ASSIGN(auto socket, new_socket());
    const auto address = address_in(**directory);
    while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        if (errno == EINTR) continue;
        if (errno == ENOENT || errno == ECONNREFUSED) return none;
        return path_error(errno, "connecting to", join_path(agent_directory(local_dir), socket_name));
    }
    TAILRACE_TRY(check_peer(socket));
    return AgentConnection(std::move(socket));
}

}  // namespace tailrace::internal
