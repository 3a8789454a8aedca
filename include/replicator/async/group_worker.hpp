// SPDX-License-Identifier: Apache-2.0
// GroupWorker: the worker of one group of replicas. In each step it pulls the newest variables from all shards,
// computes, and pushes the group's gradients to every shard. In a group of several devices the first one leads: it
// pulls and pushes for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/async/async_elements.hpp>
#include <replicator/async/async_peers.hpp>
#include <replicator/async/async_programs.hpp>
#include <replicator/async/shared_progress.hpp>
#include <replicator/engine/input_watch.hpp>
#include <replicator/runtime/execution_options.hpp>

namespace replicator::detail {

// lead_step() runs in the thread of the first device, follow() in the threads of the others.
class GroupWorker {
 public:
  // `peers`: null if the job has one process. `watches`: one for each device. All arguments outlive this object.
  GroupWorker(AsyncGroup& group, AsyncPrograms& programs, AsyncPeers* peers, SharedProgress& progress, AsyncElements& elements,
              const std::vector<std::unique_ptr<InputWatch>>& watches)
      : group_{group}, programs_{programs}, peers_{peers}, progress_{progress}, elements_{elements}, watches_{watches} {}

  int group() const { return group_.index; }
  int leading_device() const { return group_.members[0].device; }
  // Null unless the device follows in this group.
  AsyncMember* follower(int device) const {
    for (std::size_t m = 1; m < group_.members.size(); ++m)
      if (group_.members[m].device == device) return &group_.members[m];
    return nullptr;
  }

  // Makes step `number`, counts it, and reports it to the other processes.
  void lead_step(std::uint64_t number) {
    AsyncReport report{.steps = number + 1};
    std::vector<std::byte> told;
    progress_.attempt([&] {
      report.ended = !make_step(number);
      report.results = results();
      if (peers_) told = programs_.results().pack(report.results);
    });
    const bool ended = report.ended;
    if (!progress_.count(group_.index, std::move(report)) || !peers_) return;
    progress_.attempt([&] { peers_->client(leading_device()).report(group_.index, number + 1, ended, std::move(told)); });
  }
  // Computes the member's part of each step that the leader begins. Returns when no more steps will begin.
  void follow(AsyncMember& member) {
    for (std::uint64_t done = 0;; ++done) {
      bool begun = false;
      const auto over = [&] { return progress_.stops() && !progress_.groups().is_busy(group_.index); };
      if (!progress_.await([&] { return (begun = begun_ > done) || over(); }) || !begun) return;
      bool more = true;
      progress_.attempt([&] {
        more = elements_.read_next(member.first, member.count, done, watch_of(member));
        compute(member, done);
      });
      progress_.change([&] {
        more_ = more_ && more;
        ++back_;
      });
    }
  }

 private:
  InputWatch& watch_of(const AsyncMember& member) const { return *watches_[static_cast<std::size_t>(member.device)]; }

  // Returns false if the input of one of the group's replicas has ended.
  bool make_step(std::uint64_t number) {
    auto& leader = group_.members[0];
    const bool more = elements_.read_next(leader.first, leader.count, number, watch_of(leader));
    const auto shards = programs_.shards().size();
    for (std::size_t s = 0; s < shards; ++s) pull(s);
    begin_followers(more);
    compute(leader, number);
    const bool all_more = await_followers();
    for (std::size_t s = 0; s < shards; ++s) push(s);
    return all_more;
  }
  // A shard of this process is used in place; a shard of another process is used through its server.
  void pull(std::size_t s) {
    auto& shard = *programs_.shards()[s];
    const int device = leading_device();
    if (shard.gate) shard.gate->read(group_.index, [&] { programs_.copies().pull(s, device); });
    else peers_->client(device).read(shard.owner, group_.index, s, programs_.copies().values_at(s, device));
  }
  void push(std::size_t s) {
    auto& shard = *programs_.shards()[s];
    auto* client = peers_ ? &peers_->client(leading_device()) : nullptr;
    if (shard.gate) {
      shard.gate->update(group_.index, [&](std::int64_t before) { programs_.update(shard, group_.means, before); });
      if (client && programs_.deployment().staleness) client->look();  // the server retries the updates that it holds
      return;
    }
    ShardClient::ConstPieces gradients;
    for (const auto& [ordinal, type] : shard.gradients) gradients.push_back(group_.means[ordinal].bytes());
    client->update(shard.owner, group_.index, s, gradients);
  }
  void begin_followers(bool more) {
    progress_.change([&] {
      ++begun_;
      back_ = 0;
      more_ = more;
    });
  }
  // Returns true if every member had an element for another step.
  bool await_followers() {
    if (!progress_.await([&] { return back_ + 1 == group_.members.size(); })) std::rethrow_exception(progress_.error());
    return more_;  // no follower changes it before the next step
  }
  // Computes one step of the member's replicas, then makes their next elements the current ones.
  void compute(AsyncMember& member, std::uint64_t number) {
    const auto& deployment = programs_.deployment();
    try {
      execute(member.program, elements_.of(member.first, member.count),
              {.seed = programs_.seed(), .step = number, .deadline = deployment.deadline, .capture = deployment.capture});
    } catch (const CommunicationError& error) {
      throw CommunicationError{programs_.placement().text(group_.index) + ", counted from 0 in what follows: " + error.what(),
                               programs_.placement().process()};
    }
    elements_.advance(member.first, member.count);
  }
  std::vector<std::vector<AnyArray>> results() const {
    std::vector<std::vector<AnyArray>> results(programs_.results().size());
    for (std::size_t k = 0; k < results.size(); ++k)
      for (const auto& member : group_.members)
        for (int r = 0; r < member.count; ++r)
          results[k].push_back(member.program.results[k][member.program.uniform_result[k] ? 0 : static_cast<std::size_t>(r)]);
    return results;
  }

  AsyncGroup& group_;
  AsyncPrograms& programs_;
  AsyncPeers* peers_;
  SharedProgress& progress_;
  AsyncElements& elements_;
  const std::vector<std::unique_ptr<InputWatch>>& watches_;
  // About the latest step; guarded by the lock of progress_.
  std::uint64_t begun_ = 0;  // steps that the leader has begun after pulling the variables
  std::size_t back_ = 0;     // followers that have computed the step
  bool more_ = true;         // every member had an element for another step
};

}  // namespace replicator::detail
