// SPDX-License-Identifier: Apache-2.0
// Numeric addresses: as text, of this machine's interfaces, and loopback addresses. Asks no name server.
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::detail::transport::detail {

// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage{};  // IPv4 or IPv6

  SocketAddress() = default;
  explicit SocketAddress(const sockaddr& address) {
    std::memcpy(&storage, &address, address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  }
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  socklen_t length() const { return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }
  in_addr& four() { return reinterpret_cast<sockaddr_in&>(storage).sin_addr; }
  const in_addr& four() const { return reinterpret_cast<const sockaddr_in&>(storage).sin_addr; }
  in6_addr& six() { return reinterpret_cast<sockaddr_in6&>(storage).sin6_addr; }
  const in6_addr& six() const { return reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr; }
  bool mapped() const {
    return family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six());
  }  // IPv4 on a socket of both families
  bool link_local() const { return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six()); }
  std::uint16_t port() const {
    return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  }  // at the same place in both
  void set_port(std::uint16_t port) { reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port); }

  // "10.0.0.1", "::1"
  std::string text() const {
    char result[INET6_ADDRSTRLEN] = {};
    if (mapped())
      ::inet_ntop(AF_INET, six().s6_addr + 12, result, sizeof result);
    else if (family() == AF_INET6)
      ::inet_ntop(AF_INET6, &six(), result, sizeof result);
    else
      ::inet_ntop(AF_INET, &four(), result, sizeof result);
    return result;
  }
  const char* family_name() const { return family() == AF_INET6 && !mapped() ? "IPv6" : "IPv4"; }
  // "10.0.0.1, port 29500 (IPv4)"
  std::string with_port() const { return text() + ", port " + std::to_string(port()) + " (" + family_name() + ")"; }
};

// Returns nothing where the text is no numeric address.
inline std::optional<SocketAddress> numeric_address(const std::string& text) {
  SocketAddress result;
  result.storage.ss_family = AF_INET;
  if (::inet_pton(AF_INET, text.c_str(), &result.four()) == 1) return result;
  result.storage.ss_family = AF_INET6;
  if (::inet_pton(AF_INET6, text.c_str(), &result.six()) == 1) return result;
  return std::nullopt;
}

// The loopback address that the text names. Returns nothing for an address that other machines may know.
inline std::optional<SocketAddress> loopback_address(const std::string& text) {
  const auto address = numeric_address(text == "localhost" ? "127.0.0.1" : text);
  if (!address) return std::nullopt;
  if (address->family() == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&address->six())
                                    : (ntohl(address->four().s_addr) >> 24) == 127)
    return address;
  return std::nullopt;
}

// An address of a network interface.
struct InterfaceAddress {
  std::string interface;
  SocketAddress address;
  bool loopback = false;
  bool running = false;  // its link carries data
};

// The addresses of all interfaces that are up.
inline std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{list, ::freeifaddrs};
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next)
    if (entry->ifa_addr != nullptr && (entry->ifa_flags & IFF_UP) != 0 &&
        (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6))
      result.push_back({entry->ifa_name, SocketAddress{*entry->ifa_addr}, (entry->ifa_flags & IFF_LOOPBACK) != 0, (entry->ifa_flags & IFF_RUNNING) != 0});
  return result;
}

// The addresses that the user chose: those of a named interface (IPv4 first, link-local last), or one numeric address.
// Throws BuildError that lists what this machine has, where it has no such interface or address.
inline std::vector<InterfaceAddress> addresses_of(const std::string& choice) {
  const auto numeric = numeric_address(choice);
  std::vector<InterfaceAddress> chosen;
  std::string all;
  for (const auto& entry : interface_addresses()) {
    all += (all.empty() ? "" : ", ") + entry.interface + " (" + entry.address.text() + ")";
    if (numeric ? entry.address.text() == numeric->text() : entry.interface == choice) chosen.push_back(entry);
  }
  if (chosen.empty())
    throw BuildError{"--interface (or REPLICATOR_INTERFACE) is \"" + choice +
                     "\", but no interface of that name or address is up on this machine; it has " + all};
  const auto order = [](const InterfaceAddress& entry) {
    return entry.address.family() == AF_INET ? 0
           : entry.address.link_local()      ? 2
                                             : 1;
  };
  std::stable_sort(chosen.begin(), chosen.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return chosen;
}

// The addresses at which other hosts may reach this one, comma-separated, the loopback address last. `interface`: as in
// ProcessEnvironment.
inline std::string own_addresses(const std::string& interface) {
  std::string result;
  for (const auto& entry : interface.empty() ? interface_addresses() : addresses_of(interface))
    if (!interface.empty() || (!entry.loopback && !entry.address.link_local())) result += entry.address.text() + ",";
  return interface.empty() ? result + "127.0.0.1" : result;
}

}  // namespace replicator::detail::transport::detail
