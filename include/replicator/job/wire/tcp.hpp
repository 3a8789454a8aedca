// SPDX-License-Identifier: Apache-2.0
// TCP sockets for the rendezvous: listening, and connecting with a timeout.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/io/file_descriptor.hpp>
#include <replicator/job/wire/socket_address.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::detail::transport::detail {

inline void set_no_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// The address of this end.
inline SocketAddress address_of(int socket) {
  SocketAddress result;
  socklen_t length = sizeof result.storage;
  static_cast<void>(::getsockname(socket, reinterpret_cast<sockaddr*>(&result.storage), &length));
  return result;
}

inline SocketAddress address_of_peer(int socket) {
  SocketAddress result;
  socklen_t length = sizeof result.storage;
  static_cast<void>(::getpeername(socket, reinterpret_cast<sockaddr*>(&result.storage), &length));
  return result;
}

inline std::uint16_t port_of(int socket) { return address_of(socket).port(); }

// Returns an empty descriptor, with errno, on failure.
inline FileDescriptor listen_at(const SocketAddress& address) {
  const int on = 1;
  const int off = 0;
  FileDescriptor socket{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket) return {};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.get(), address.get(), address.length()) == 0 && ::listen(socket.get(), 1024) == 0) return socket;
  const int why = errno;
  socket.close();
  errno = why;
  return {};
}

// Listens at `where`, or on every address of this host. `port` 0 takes a free port. Throws CommunicationError, which names
// `process`, this one.
inline FileDescriptor listen_on(std::uint16_t port, const std::optional<SocketAddress>& where = {}, int process = 0) {
  SocketAddress address = where ? *where : *numeric_address("::");
  address.set_port(port);
  FileDescriptor socket = listen_at(address);
  if (!socket && !where && errno != EADDRINUSE && errno != EACCES) {  // a host without IPv6
    address = *numeric_address("0.0.0.0");
    address.set_port(port);
    socket = listen_at(address);
  }
  if (!socket)
    throw CommunicationError{"process " + std::to_string(process) + " cannot listen on " + (port ? "port " + std::to_string(port) : "a free port") +
                                 (where ? " of " + where->text() : std::string{}) + ": " + errno_text(errno) +
                                 (port ? "; choose another MASTER_PORT" : "; choose another address by --interface, or raise the limit of open files"),
                             process};
  return socket;
}

// Whether the socket is connected to itself. TCP allows that for a free local port, and it would look like a peer.
inline bool is_connected_to_itself(int socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof here;
  socklen_t there_length = sizeof there;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &here_length);
  ::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &there_length);
  return here_length == there_length && std::memcmp(&here, &there, here_length) == 0;
}

// Connects non-blocking sockets, all at once. Returns 0 or an errno for each: ETIMEDOUT after the limit.
struct Connecting {
  int socket;
  const SocketAddress* to;
};
inline std::vector<int> finish_connecting(std::span<const Connecting> all, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  std::vector<int> numbers;
  std::vector<pollfd> events;
  for (const auto& [socket, to] : all) {
    numbers.push_back(::connect(socket, to->get(), to->length()) == 0 ? 0 : errno);
    events.push_back({numbers.back() == EINPROGRESS ? socket : -1, POLLOUT, 0});  // poll() passes over -1
  }
  while (std::count(numbers.begin(), numbers.end(), EINPROGRESS) > 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    const int ready = ::poll(events.data(), events.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready == 0 || (ready < 0 && errno != EINTR)) break;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (events[i].fd < 0 || events[i].revents == 0) continue;
      socklen_t length = sizeof(int);
      ::getsockopt(all[i].socket, SOL_SOCKET, SO_ERROR, &numbers[i], &length);
      events[i].fd = -1;
    }
  }
  std::replace(numbers.begin(), numbers.end(), EINPROGRESS, ETIMEDOUT);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (numbers[i] == 0 && is_connected_to_itself(all[i].socket)) numbers[i] = ECONNREFUSED;
  return numbers;
}
inline int finish_connecting(int socket, const SocketAddress& to, std::chrono::milliseconds limit) {
  const Connecting one{socket, &to};
  return finish_connecting({&one, 1}, limit)[0];
}

// Connects from an address in `from` of the same family; from any address where `from` is empty. On failure it returns an
// empty descriptor and fills `error`.
inline FileDescriptor connect_to_address(const SocketAddress& to, const std::vector<InterfaceAddress>& from,
                                         std::chrono::milliseconds limit, std::string& error) {
  const auto source =
      std::find_if(from.begin(), from.end(), [&](const auto& entry) { return entry.address.family() == to.family(); });
  if (!from.empty() && source == from.end()) {
    error = to.with_port() + ": " + from.front().interface + " has no address of that family";
    return {};
  }
  FileDescriptor socket{::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  int number = socket ? 0 : errno;
  if (number == 0 && !from.empty() && ::bind(socket.get(), source->address.get(), source->address.length()) != 0)
    number = errno;
  if (number == 0) number = finish_connecting(socket.get(), to, limit);
  if (number != 0) {
    error = to.with_port() + ": " + errno_text(number);
    return {};
  }
  set_no_delay(socket.get());
  return socket;
}

// The addresses of a host: a numeric address, which needs no name server, or a name. Where there are none, `error` says why.
inline std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, std::string& error) {
  const std::string service = std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  int status = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list);
  if (status == EAI_NONAME) {
    hints.ai_flags = AI_NUMERICSERV;
    status = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list);
  }
  if (status != 0) {
    error = host + ": " + ::gai_strerror(status);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner{list, ::freeaddrinfo};
  std::vector<SocketAddress> result;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) result.emplace_back(*info->ai_addr);
  return result;
}

// Tries every address of the host once. Where none answers, it returns an empty descriptor, and `error` gives the reason
// for each.
inline FileDescriptor connect_to(const std::string& host, std::uint16_t port, std::chrono::milliseconds limit,
                                 std::string& error, const std::vector<InterfaceAddress>& from = {}) {
  const auto addresses = resolve(host, port, error);
  if (addresses.empty()) return {};
  error.clear();
  for (const auto& address : addresses) {
    std::string why;
    if (auto socket = connect_to_address(address, from, limit, why)) return socket;
    error += (error.empty() ? "" : "; ") + why;
  }
  return {};
}

// Splits "a,b" into {"a", "b"}.
inline std::vector<std::string> split_addresses(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const auto comma = text.find(',');
    if (comma != 0) result.emplace_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return result;
}

}  // namespace replicator::detail::transport::detail
