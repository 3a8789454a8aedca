// SPDX-License-Identifier: Apache-2.0
// A replicated step without its types: what Step asks of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/graph/value.hpp>
#include <replicator/runtime/see/machine_figures.hpp>

namespace replicator {
class ReplicaContext;
}

namespace replicator::detail {

// The step function of one replica, given the tensors of its element.
using Trace = std::function<void(ReplicaContext&, const std::vector<AnyTensor>&)>;

// The results of one step: values[k] are those of result k, for the replicas [first[k], first[k] + values[k].size()).
struct StepResults {
  std::vector<std::vector<AnyArray>> values;
  std::vector<int> first;
  // By replica of all processes: what there is for the next step.
  std::vector<std::uint64_t> upcoming;
  bool all_have_next = true;
  int stop_signal = 0;    // that asks some process to stop
  bool newcomer = false;  // somebody waits to be taken into the job
};

class StepDriver {
 public:
  StepDriver() = default;
  StepDriver(const StepDriver&) = delete;
  StepDriver& operator=(const StepDriver&) = delete;
  virtual ~StepDriver() = default;

  virtual StepResults run() = 0;
  virtual bool finished() const = 0;
  virtual std::uint64_t steps_done() const = 0;
  // Of those, by the run that this one resumes, or by the others before this process came back to its job: then it grows once, in run().
  virtual std::uint64_t steps_resumed() const = 0;
  // That the processes have agreed to stop for; 0 where none came.
  virtual int stop_signal() = 0;
  virtual std::string explain(const ExplainOptions& options) = 0;
  virtual std::string dot() = 0;
  virtual std::string resolved_dot() = 0;
  virtual std::string plan_json() = 0;
};

}  // namespace replicator::detail
