// SPDX-License-Identifier: Apache-2.0
// Which process of a job this is, and the variables that say so.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <replicator/core/parse.hpp>
#include <replicator/io/file_descriptor.hpp>
#include <string>
#include <string_view>

namespace replicator::detail::transport {

// Which process of how many this is. The default is a job of one process.
struct ProcessEnvironment {
  int rank = 0;
  int world_size = 1;
  // Where process 0 listens: a name or a numeric address; several, separated by commas, are tried in turn.
  std::string master_address;
  std::uint16_t master_port = 0;
  // Processes that name another job are turned away. Empty is a name too.
  std::string job_name;
  // A secret that the processes prove to each other that they have. Empty: whoever comes is believed.
  std::string job_token;
  // The network interface, by name or numeric address, to which this process keeps. Empty: any.
  std::string interface;
  // How often a process of this rank was taken into the job while it was at work: this one is the latest.
  std::uint64_t life = 0;
  // Process 0 only: a socket that listens already (a launcher had to publish its port); else Job makes one.
  std::shared_ptr<FileDescriptor> listener;
};

namespace detail {

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
