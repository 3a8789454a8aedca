// SPDX-License-Identifier: Apache-2.0
// TCP sockets for the rendezvous: listening, and connecting with a limit on the time.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <replicator/core/error.hpp>
#include <replicator/transport/file_descriptor.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::transport::detail {

inline void set_no_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

inline std::uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// Listens on every address of this host; `port` 0 takes a free one. Throws CommunicationError.
inline FileDescriptor listen_on(std::uint16_t port) {
  const int on = 1;
  const int off = 0;
  FileDescriptor socket{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  int status = -1;
  if (socket) {
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    status = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&six), sizeof six);
  }
  if (status != 0 && errno != EADDRINUSE && errno != EACCES) {  // a host without IPv6
    socket = FileDescriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    status = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&four), sizeof four);
  }
  if (status == 0) status = ::listen(socket.get(), 1024);
  if (status != 0)
    throw CommunicationError{"process 0 cannot listen on port " + std::to_string(port) + ": " + errno_text(errno) +
                                 "; choose another MASTER_PORT",
                             0};
  return socket;
}

// A free port connected to itself looks like a peer (TCP allows it): true for such a socket.
inline bool is_connected_to_itself(int socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof here;
  socklen_t there_length = sizeof there;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &here_length);
  ::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &there_length);
  return here_length == there_length && std::memcmp(&here, &there, here_length) == 0;
}

inline FileDescriptor connect_to_address(const addrinfo& info, std::chrono::milliseconds limit, std::string& error) {
  FileDescriptor socket{::socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  int number = socket ? 0 : errno;
  if (number == 0 && ::connect(socket.get(), info.ai_addr, info.ai_addrlen) != 0) number = errno;
  if (number == EINPROGRESS) {
    pollfd event{socket.get(), POLLOUT, 0};
    socklen_t length = sizeof number;
    number = ETIMEDOUT;
    if (::poll(&event, 1, static_cast<int>(limit.count())) == 1)
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &number, &length);
  }
  if (number == 0 && is_connected_to_itself(socket.get())) number = ECONNREFUSED;
  if (number != 0) {
    error = errno_text(number);
    return {};
  }
  set_no_delay(socket.get());
  return socket;
}

// One attempt on every address of the host. An empty result and `error` filled where none answered.
inline FileDescriptor connect_to(const std::string& host, std::uint16_t port, std::chrono::milliseconds limit,
                                 std::string& error) {
  const std::string service = std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;  // a numeric address needs no name server
  addrinfo* list = nullptr;
  int status = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list);
  if (status == EAI_NONAME) {
    hints.ai_flags = AI_NUMERICSERV;
    status = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list);
  }
  if (status != 0) {
    error = ::gai_strerror(status);
    return {};
  }
  FileDescriptor result;
  for (const addrinfo* info = list; info != nullptr && !result; info = info->ai_next)
    result = connect_to_address(*info, limit, error);
  ::freeaddrinfo(list);
  return result;
}

// "a,b" as {"a", "b"}.
inline std::vector<std::string> split_addresses(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const auto comma = text.find(',');
    if (comma != 0) result.emplace_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return result;
}

}  // namespace replicator::transport::detail
