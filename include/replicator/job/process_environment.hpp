// SPDX-License-Identifier: Apache-2.0
// The place of a process in its job: rank, size, address of process 0, job name, whom it believes. Also helpers to read variables.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <replicator/core/parse.hpp>
#include <replicator/core/processes.hpp>
#include <replicator/io/file_descriptor.hpp>
#include <string>
#include <string_view>

namespace replicator::detail::transport {

class Directory;  // job/etcd/directory.hpp

// The place of this process in its job. The default is a job of one process.
struct ProcessEnvironment {
  int rank = 0;
  int world_size = 1;
  // The address where process 0 listens: a name or a numeric address. Several, separated by commas, are tried in turn.
  std::string master_address;
  std::uint16_t master_port = 0;
  // An etcd that tells where the first process is, if set. Then the address and the port above are those it told last.
  std::shared_ptr<Directory> directory;
  // Processes that name another job are turned away. The empty name is a name too.
  std::string job_name;
  // A secret that the processes prove to each other. Empty: only processes of this user on this machine are believed.
  std::string job_token;
  // Without a token everybody is believed, and process 0 listens on every interface.
  bool insecure = false;
  // The network interface that this process keeps to, by name or numeric address. Empty: any.
  std::string interface;
  // How often a process of this rank was admitted to the running job. This process is the latest.
  std::uint64_t life = 0;
  // Process 0 only: a socket that listens already, where a launcher had to publish its port. Otherwise Job makes one.
  std::shared_ptr<FileDescriptor> listener;
};

// The place of this process among processes that the program knows.
inline ProcessEnvironment environment_of(const Processes& processes) { return processes.environment() ? *processes.environment() : ProcessEnvironment{}; }

namespace detail {

// The value of an environment variable. An empty variable counts as absent.
inline std::optional<std::string> variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string{text};
}

inline int number_variable(const std::string& name, std::string_view text, int lowest, int highest) {
  return static_cast<int>(parse_number("the variable " + name, text, lowest, highest));
}

}  // namespace detail

}  // namespace replicator::detail::transport
