// SPDX-License-Identifier: Apache-2.0
// Replicas with consecutive numbers, as text for messages.
#pragma once

#include <string>

namespace replicator::detail {

// "replica 2", "replicas 2 to 4". `many` stands before the numbers of several.
inline std::string replicas_text(int first, int last, const char* many = "replicas ") {
  if (first == last) return "replica " + std::to_string(first);
  return many + std::to_string(first) + " to " + std::to_string(last);
}
// For a replica that does not exist, behind "there": "is only replica 0", "are only the replicas 0 to 3".
inline std::string only_replicas_text(int count) {
  return count == 1 ? "is only replica 0" : "are only the replicas 0 to " + std::to_string(count - 1);
}

}  // namespace replicator::detail
