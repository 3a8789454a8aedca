// SPDX-License-Identifier: Apache-2.0
// The user at the other end of a connection within this machine, as the kernel says.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <replicator/io/read_text.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <string>

namespace replicator::detail::transport::detail {

// An address as the kernel's tables of TCP connections print it: "0100007F:733C" in the IPv4 table.
inline std::string in_kernel_table(const SocketAddress& address, bool six) {
  std::uint32_t words[4] = {0, 0, htonl(0xffff), 0};
  if (address.family() == AF_INET6) std::memcpy(words, &address.six(), sizeof words);
  else words[3] = address.four().s_addr;
  std::string result;
  char text[16];
  for (int word = six ? 0 : 3; word < 4; ++word) {
    std::snprintf(text, sizeof text, "%08X", words[word]);
    result += text;
  }
  std::snprintf(text, sizeof text, ":%04X", address.port());
  return result + text;
}

// The owner of the TCP socket that is connected from `there` to `here`. It must still be open: a socket that its process
// has closed belongs to nobody, and is printed as if it were root's.
inline std::optional<uid_t> user_of_connection(const SocketAddress& there, const SocketAddress& here) {
  constexpr const char* established = " 01 ";
  for (int look = 0; look < 3; ++look)  // the kernel prints the table in parts, so a row can be missed while others come and go
    for (const bool six : {false, true}) {
      if (!six && there.family() == AF_INET6 && !there.mapped()) continue;
      const auto table = read_text(six ? "/proc/thread-self/net/tcp6" : "/proc/thread-self/net/tcp").value_or("");
      const auto row = " " + in_kernel_table(there, six) + " " + in_kernel_table(here, six) + established;
      const auto at = table.find(row);
      if (at == std::string::npos) continue;
      unsigned user = 0;
      unsigned long inode = 0;
      if (std::sscanf(table.c_str() + at + row.size(), "%*s %*s %*s %u %*d %lu", &user, &inode) == 2 && inode != 0) return user;
    }
  return {};
}

// Returns nothing where the other end is on another machine or in another network namespace, was not accepted yet, or (of a
// TCP connection) is closed.
inline std::optional<uid_t> user_of_peer(int socket) {
  const auto there = address_of_peer(socket);
  if (there.family() == AF_UNIX) {
    ucred peer{};
    socklen_t length = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? std::optional{peer.uid} : std::nullopt;
  }
  pollfd end{socket, POLLRDHUP, 0};
  if ((there.family() != AF_INET && there.family() != AF_INET6) || ::poll(&end, 1, 0) != 0) return {};  // a closed end needs no search
  return user_of_connection(there, address_of(socket));
}

// Whether the other end belongs to a process of this user on this machine.
inline bool same_user(int socket) { return user_of_peer(socket) == ::geteuid(); }

}  // namespace replicator::detail::transport::detail
