// SPDX-License-Identifier: Apache-2.0
// StepDriver: the type-erased replicated step, through which Step uses the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/location.hpp>
#include <replicator/graph/value.hpp>
#include <replicator/runtime/see/machine_figures.hpp>

namespace replicator {
class ReplicaContext;
}

namespace replicator::detail {

// The step function of one replica, called with the tensors of an element.
using Trace = std::function<void(ReplicaContext&, const std::vector<AnyTensor>&)>;

// The results of one step: values[k] are those of result k, for the replicas [first[k], first[k] + values[k].size()).
struct StepResults {
  std::vector<std::vector<AnyArray>> values;
  std::vector<int> first;
  // For each replica of all processes: a word about its input for the next step.
  std::vector<std::uint64_t> upcoming;
  bool all_have_next = true;
  int stop_signal = 0;       // a signal that asks some process to stop; 0: none
  bool newcomer = false;     // a process waits to join the job
  bool sets_differ = false;  // the processes' programs have set different values since the last step
};

class StepDriver {
 public:
  StepDriver() = default;
  StepDriver(const StepDriver&) = delete;
  StepDriver& operator=(const StepDriver&) = delete;
  virtual ~StepDriver() = default;

  // `where`: the line of the program that asks for the step.
  virtual StepResults run(Location where) = 0;
  virtual bool finished() const = 0;
  virtual std::uint64_t steps_done() const = 0;
  // How many of those steps were done before the run was resumed, or by other processes before this one rejoined the
  // job. In the latter case it grows once, in run().
  virtual std::uint64_t steps_resumed() const = 0;
  // After how many of its steps the program left a loop early, ascending: what a checkpoint keeps. Null where none is kept.
  using Breaks = std::shared_ptr<std::vector<std::uint64_t>>;
  virtual Breaks breaks() const { return nullptr; }
  // The signal for which the processes have agreed to stop; 0: none.
  virtual int stop_signal() = 0;
  virtual std::string explain(const ExplainOptions& options) = 0;
  virtual std::string dot() = 0;
  virtual std::string resolved_dot() = 0;
  virtual std::string plan_json() = 0;
};

}  // namespace replicator::detail
