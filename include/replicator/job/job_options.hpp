// SPDX-License-Identifier: Apache-2.0
// The clocks of a job, and what its processes know of each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace replicator::detail::transport {

// All in milliseconds. Every process of a job should be given the same.
struct JobOptions {
  // Every process says this often that it lives.
  std::chrono::milliseconds heartbeat{500};
  // A process that has said nothing for this long is dead: gone, stopped, or cut off.
  std::chrono::milliseconds dead_after{3000};
  // A lost connection waits this long for a word of explanation before it blames.
  std::chrono::milliseconds grace{200};
  // How long the processes look for each other before the job fails to start.
  std::chrono::milliseconds connect_deadline{60000};
  // A process that has looked for the others this long says on stderr what it tries, then less and less often. Zero: never.
  std::chrono::milliseconds report_after{3000};
  // How long an exchange waits, once begun, for the last process (alive, but elsewhere). Zero waits without end.
  std::chrono::milliseconds exchange_deadline{60000};
  // A process that has left waits for the others without end, for they may have much to do and their death is noticed; after this long
  // it says so on stderr. Zero: never.
  std::chrono::milliseconds late{10000};
};

struct ProcessInfo {
  std::int64_t pid = 0;
  std::string host;
};

}  // namespace replicator::detail::transport
