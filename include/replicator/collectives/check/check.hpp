// SPDX-License-Identifier: Apache-2.0
// Proves a schedule without running it, for every number of elements at once: its form, the order of its instructions,
// and a replay with terms for values (check_form.hpp, check_order.hpp, check_replay.hpp).
//
// Chunks are terms of their own and may be empty, so the proof holds for fewer elements than ranks.
#pragma once

#include <replicator/collectives/check/check_replay.hpp>
#include <string>

namespace replicator::detail::collectives {

// Empty, or what is wrong with the schedule and where.
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
