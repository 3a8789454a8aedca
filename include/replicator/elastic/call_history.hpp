// SPDX-License-Identifier: Apache-2.0
// CallHistory: the rollback log of an elastic engine. It keeps the two latest snapshots and the program's later calls,
// which are repeated after a rollback.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <replicator/elastic/restartable_steps.hpp>
#include <replicator/elastic/rollback.hpp>
#include <replicator/engine/host.hpp>
#include <replicator/engine/state/snapshot.hpp>

namespace replicator::detail {

// The state before a call of the program.
struct Moment {
  Snapshot snapshot;
  std::map<std::shared_ptr<RestartableStep>, Resumption> restartables;  // the progress of the steps
};

// The two latest snapshots, and the calls since the earlier one, by the rule of Rollback.
class CallHistory {
 public:
  using Work = Rollback<Moment>::Work;

  const Snapshot& latest() const { return rollback_.latest().snapshot; }

  void begin_call() { rollback_.begin_call(); }
  void end_call(const Work& again, bool may_return) { rollback_.end_call(again, may_return); }

  // Collective: every process takes a snapshot, before the same call. If it throws CommunicationError, nothing has
  // changed.
  void remember(Host& host, RestartableSteps& restartables) {
    rollback_.remember([&](Moment& moment, std::uint64_t call) {
      host.remember(moment.snapshot);
      moment.snapshot.call = call;
      moment.restartables.clear();
      for (const auto& restartable : restartables.all()) moment.restartables[restartable] = restartable->from;
    });
    restartables.forget_expired();
  }
  // Restores on a new host the snapshot before this call. Throws BuildError if it is neither of the two.
  void go_back_to(std::uint64_t call, Host& host) {
    const auto* const moment = rollback_.go_back_to(call);
    if (!moment) return;
    host.recall(moment->snapshot);
    for (const auto& [restartable, from] : moment->restartables) restartable->from = from;
  }
  // Repeats all calls since the restored snapshot.
  void repeat() { rollback_.repeat(); }
  // Takes over the state of the other processes, from the snapshot that this process has received.
  void go_on_from(Moment moment) {
    const auto call = moment.snapshot.call;
    rollback_.go_on_from(call, std::move(moment));
  }

 private:
  Rollback<Moment> rollback_;
};

}  // namespace replicator::detail
