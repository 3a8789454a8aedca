// SPDX-License-Identifier: Apache-2.0
// State transfer to a process that rejoins a running job: the sender and the receiver of the snapshot.
#pragma once

#include <cstddef>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <replicator/elastic/call_history.hpp>
#include <replicator/elastic/restartable_steps.hpp>
#include <replicator/engine/state/snapshot.hpp>
#include <replicator/job/elastic/job_sequence.hpp>

namespace replicator::detail {

// For process 0: offers the common snapshot to the process that waits outside.
inline std::optional<transport::AdmissionOffer> offer_at(transport::JobSequence& elastic, const RestartableSteps& restartables, const RestartableStep& restartable,
                                                         const Snapshot& latest) {
  const auto place = restartables.place_before(restartable);
  return elastic.hand_over([&](const auto& wish) { return wish == place; },
                           [&] {
                             std::map<int, Resumption> steps;
                             for (const auto& step : restartables.living()) steps[step->ordinal] = step->from;
                             return pack_handover(latest, steps);
                           });
}

// Collective: all processes are about to run `restartable`, and `latest` is the snapshot before that run. Returns true
// if a waiting process has accepted it. Then all processes leave the job and meet that process in the next one. Throws
// CommunicationError if a process is lost.
inline bool take_in(transport::JobSequence& elastic, transport::Job& job, const RestartableSteps& restartables, const RestartableStep& restartable, const Snapshot& latest) {
  const bool first = job.rank() == 0;
  const auto mine = first ? transport::AdmissionOffer::pack(detail::offer_at(elastic, restartables, restartable, latest)) : std::vector<std::byte>{};
  std::string name;
  const bool comes = elastic.decide([&] {
    auto offer = transport::AdmissionOffer::unpack(job.exchange(mine, "the taking in of a process")[0]);
    if (offer) name = offer->name;
    return offer;
  });
  if (comes && first)
    std::fprintf(stderr, "replicator: %s comes back to the job and is given replicas of the %d process(es) that are in it\n", name.c_str(),
                 job.size());
  return comes;
}

// For the process outside, before its first run of `restartable`, in a job of so many replicas. Waits until the others
// are about to run the same step. Returns the state that it receives. Throws as JobSequence::enter does, and
// CommunicationError if the received bytes are damaged.
inline Moment come_in(transport::JobSequence& elastic, const RestartableSteps& restartables, const RestartableStep& restartable, int replicas) {
  const auto state = elastic.enter(restartables.place_before(restartable));
  std::set<int> ordinals;
  for (const auto& step : restartables.living()) ordinals.insert(step->ordinal);
  auto handover = received_handover(state, *elastic.job(), ordinals, replicas);
  Moment moment{std::move(handover.snapshot), {}};
  for (const auto& step : restartables.living()) {
    auto& from = moment.restartables[step] = handover.steps.at(step->ordinal);
    from.life = step->from.life;
    if (from.life) {
      moment.snapshot.checkpoints.lives[step->ordinal] = from.life;  // other entries belong to destroyed steps
      from.breaks = moment.snapshot.checkpoints.state.steps[step->ordinal].breaks;
    }
    step->resumed = from.done;
  }
  return moment;
}

}  // namespace replicator::detail
