// SPDX-License-Identifier: Apache-2.0
// Whom a job believes: processes with its token; without one, processes of its user on its machine; or everybody. And where its
// processes meet.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/job/etcd/directory.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/process_environment.hpp>
#include <replicator/job/wire/peer_user.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <string>
#include <vector>

namespace replicator::detail::transport::detail {

// Whether the job believes only processes of this user on this machine.
inline bool believes_only_this_user(const ProcessEnvironment& environment) { return environment.job_token.empty() && !environment.insecure; }

// How a job gets a token, or does without.
inline constexpr const char* token_advice =
    "give all processes the same secret: run `export REPLICATOR_JOB_TOKEN=$(openssl rand -hex 32)` once, and start each process with that "
    "value (or with --job-token-file). Or give all --insecure (REPLICATOR_INSECURE=1), if you trust everybody who can reach the network";

// Why a process that has no token may not take part; empty where it may. `whom`: who must belong to this user, for the
// sentence.
inline std::string objection_to_peer(int socket, const std::string& whom) {
  const auto user = user_of_peer(socket);
  if (user == ::geteuid()) return {};
  const auto here = std::to_string(::geteuid());
  const auto address = address_of_peer(socket).text();
  if (!user && loopback_address(address)) return whom + " at " + address + " has closed the connection";
  return whom + " at " + address + (user ? " belongs to user " + std::to_string(*user) : " is on another machine, or has closed the connection") +
         ". Without a job token only processes of one user on one machine believe each other (this one is of user " + here + "): " + token_advice;
}

// Whether all addresses of a MASTER_ADDR are loopback addresses.
inline bool only_this_machine_knows(const std::string& master_address) {
  const auto addresses = split_addresses(master_address);
  return !addresses.empty() && std::all_of(addresses.begin(), addresses.end(), [](const auto& text) { return loopback_address(text).has_value(); });
}

// Where process 0 listens:
// - on the loopback interface, where only this machine knows its address, or where it believes only processes of this machine
// - on the interface that the user chose
// - otherwise everywhere, returned as no value
inline std::optional<SocketAddress> listening_address(const ProcessEnvironment& environment) {
  if (!environment.interface.empty()) return addresses_of(environment.interface).front().address;
  if (only_this_machine_knows(environment.master_address)) return loopback_address(split_addresses(environment.master_address).front());
  return believes_only_this_user(environment) ? loopback_address("127.0.0.1") : std::nullopt;
}

// The addresses at which other hosts find a process that listens so, as in MASTER_ADDR. The loopback address is not one of them, unless
// it is the only one: on another host it leads somewhere else.
inline std::string own_addresses_of(const ProcessEnvironment& environment) {
  if (const auto one = listening_address(environment)) return one->text();
  const auto all = own_addresses("");
  const auto last = all.rfind(',');
  return last == std::string::npos ? all : all.substr(0, last);
}

// What a user can do where processes meet at an address that not all of them can reach, for messages.
inline std::string address_advice(const ProcessEnvironment& environment) {
  const std::string interface = "choose an interface with --interface";
  return environment.directory ? interface : "name a MASTER_ADDR that all machines know, or " + interface;
}

// Where processes meet, for messages.
inline std::string meeting_place(const ProcessEnvironment& environment) {
  const auto address = environment.master_address + ", port " + std::to_string(environment.master_port);
  if (!environment.directory) return address;
  return (environment.master_port == 0 ? "the address" : address) + " in " + environment.directory->text();
}

// Where a process looks for process 0. Without a token that may be at the loopback interface only, whatever MASTER_ADDR says.
inline std::vector<std::string> addresses_of_first(const ProcessEnvironment& environment) {
  auto result = split_addresses(environment.master_address);
  if (believes_only_this_user(environment) && !only_this_machine_knows(environment.master_address)) result.emplace_back("127.0.0.1");
  return result;
}

// Whether an address of the text, a name or a numeric address, belongs to this machine; true where it cannot be found out.
inline bool may_be_this_machine(const std::string& text) {
  std::string error;
  const auto found = resolve(text, 0, error);
  const auto own = interface_addresses();
  return found.empty() || std::any_of(found.begin(), found.end(), [&](const SocketAddress& address) {
           return loopback_address(address.text()) || std::any_of(own.begin(), own.end(), [&](const auto& entry) { return entry.address.text() == address.text(); });
         });
}

// Throws BuildError where a job without a token would need more than this machine's loopback interface.
inline void require_token_between_machines(const ProcessEnvironment& environment) {
  if (environment.world_size == 1 || !believes_only_this_user(environment)) return;
  const auto self = "process " + std::to_string(environment.rank) + " has no job token, so it meets only processes of this machine, over the loopback interface; but ";
  if (!environment.interface.empty() && !addresses_of(environment.interface).front().loopback)
    throw BuildError{self + "--interface (or REPLICATOR_INTERFACE) is \"" + environment.interface + "\". Leave it out, or " + token_advice};
  const auto addresses = split_addresses(environment.master_address);
  if (environment.rank > 0 && !environment.directory && std::none_of(addresses.begin(), addresses.end(), may_be_this_machine))
    throw BuildError{self + "process 0 is on another one, at " + environment.master_address + " (MASTER_ADDR). To run on several machines, " + token_advice};
}

}  // namespace replicator::detail::transport::detail
