// SPDX-License-Identifier: Apache-2.0
// Proves a schedule correct without running it, for every number of elements at once. The proof has three parts: the form
// (check_form.hpp), the order of the instructions (check_order.hpp), and a symbolic replay (check_replay.hpp).
//
// The proof tracks each chunk by itself, and a chunk may be empty. So it also holds for fewer elements than ranks.
#pragma once

#include <replicator/collectives/check/check_replay.hpp>
#include <string>

namespace replicator::detail::collectives {

// Returns the fault and its place in the schedule, or an empty string.
inline std::string find_fault(const Schedule& schedule) {
  if (std::string fault = detail::fault_of_frame(schedule); !fault.empty()) return fault;
  const detail::Events events{schedule};
  if (std::string fault = detail::FormCheck{schedule, events}.fault(); !fault.empty()) return fault;
  const detail::Order order{events};
  if (!order.fault().empty()) return order.fault();
  return detail::Replay{schedule, events, order}.fault();
}

// Throws BuildError where find_fault finds one.
inline void check(const Schedule& schedule) {
  const std::string fault = find_fault(schedule);
  if (!fault.empty())
    throw BuildError{std::string{name_of(schedule.kind)} + " by the schedule \"" + schedule.name +
                     "\" is wrong: " + fault};
}

}  // namespace replicator::detail::collectives
