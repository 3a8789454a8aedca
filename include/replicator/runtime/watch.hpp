// SPDX-License-Identifier: Apache-2.0
// Watch: the interface for code that is called before and after every instruction of a device's program.
#pragma once

#include <cstdint>

namespace replicator::detail {

struct Program;

// There is one per device, called by the device's thread. It must not allocate if it must leave the steps' timing as it
// is. An exception ends the step like an error of a kernel.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;

  virtual void begin(const Program& program, std::uint64_t step) = 0;
  // Called after begin(). If it returns false, the watch needs no further calls in this step.
  virtual bool looks() const { return true; }
  virtual void before(std::uint32_t instruction) = 0;
  virtual void after(std::uint32_t instruction) = 0;
  // The end of a collective is noticed between two instructions, at the latest after the wait for it.
  virtual void finished(std::uint32_t collective) = 0;
  virtual void end() = 0;
};

}  // namespace replicator::detail
