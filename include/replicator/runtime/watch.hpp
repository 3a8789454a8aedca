// SPDX-License-Identifier: Apache-2.0
// Who looks on while a device's program runs.
#pragma once

#include <cstdint>

namespace replicator::detail {

struct Program;

// One per device, called by its thread. Must not allocate where steps are to be left as they are. What it throws ends the
// step like an error of a kernel.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;

  virtual void begin(const Program& program, std::uint64_t step) = 0;
  // Asked next: false where it need not be told of anything more in this step.
  virtual bool looks() const { return true; }
  virtual void before(std::uint32_t instruction) = 0;
  virtual void after(std::uint32_t instruction) = 0;
  // Seen between two instructions; at the latest after the wait.
  virtual void finished(std::uint32_t collective) = 0;
  virtual void end() = 0;
};

}  // namespace replicator::detail
