// SPDX-License-Identifier: Apache-2.0
// The timeouts of a job, and the description of a process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace replicator::detail::transport {

// Every process of a job should be given the same values.
struct JobOptions {
  // Interval between two heartbeats.
  std::chrono::milliseconds heartbeat{500};
  // A process that has sent nothing for this long counts as dead: it has ended, was stopped, or is cut off.
  std::chrono::milliseconds dead_after{3000};
  // After a connection is lost, wait this long for an explanation before its process is blamed.
  std::chrono::milliseconds grace{200};
  // How long the processes look for each other before the job fails to start.
  std::chrono::milliseconds connect_deadline{60000};
  // After this long a process reports on stderr whom it looks for and where; later reports come less and less often. 0:
  // never.
  std::chrono::milliseconds report_after{3000};
  // How long an exchange, once begun, waits for a process that is alive but late. 0: no limit.
  std::chrono::milliseconds exchange_deadline{60000};
  // A process that has left waits for the others without a limit: they may have much to do, and their death would be
  // noticed. After this long it reports the wait on stderr. 0: never.
  std::chrono::milliseconds late{10000};
};

// A process, as named in messages.
struct ProcessInfo {
  std::int64_t pid = 0;
  std::string host;
};

}  // namespace replicator::detail::transport
