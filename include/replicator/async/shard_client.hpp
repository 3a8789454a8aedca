// SPDX-License-Identifier: Apache-2.0
// ShardClient: the client with which a device pulls from and pushes to the shards of other processes.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/shard.hpp>
#include <replicator/async/shard_call.hpp>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/core/error.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/transport/messenger.hpp>

namespace replicator::detail {

// For one thread at a time: the device's, or the program's while the device rests. Every function returns when its
// messages have been sent and answered. Throws CommunicationError when the job is aborted, and at the deadline. The
// latter error names the process that did not answer.
class ShardClient {
 public:
  // All arguments except the messenger outlive this object.
  ShardClient(std::unique_ptr<transport::Messenger> messenger, const transport::Job& job, const Deployment& deployment,
              const AsyncPlacement& placement, const ShardRanks& ranks)
      : job_{job}, deployment_{deployment}, placement_{placement}, ranks_{ranks}, messenger_{std::move(messenger)} {}

  using Pieces = std::vector<std::span<std::byte>>;
  using ConstPieces = std::vector<std::span<const std::byte>>;

  // Pull: the shard's variables that steps read.
  void read(int owner, int group, std::size_t shard, const Pieces& into) {
    ask(owner, {.kind = ShardCall::Kind::read, .group = group, .shard = static_cast<std::uint32_t>(shard)}, {}, into);
  }
  // Push: returns after the update.
  void update(int owner, int group, std::size_t shard, const ConstPieces& gradients) {
    ask(owner, {.kind = ShardCall::Kind::update, .group = group, .shard = static_cast<std::uint32_t>(shard)}, gradients, {{&done_, 1}});
  }
  void value(int owner, std::size_t shard, std::size_t variable, std::span<std::byte> into) {
    ask(owner, {.kind = ShardCall::Kind::value, .shard = static_cast<std::uint32_t>(shard), .variable = static_cast<std::uint32_t>(variable)}, {},
        {into});
  }
  StopAgreement::Vote vote(int process) {
    ask(process, {.kind = ShardCall::Kind::vote}, {}, {std::as_writable_bytes(std::span{&vote_, 1})});
    return vote_;
  }
  // The next three go to all other processes.
  void report(int group, std::uint64_t steps, bool ended, std::vector<std::byte> results) {
    results_ = std::move(results);
    tell_others({.kind = ShardCall::Kind::report, .group = group, .steps = steps, .ended = ended}, {results_});
  }
  void pause(std::uint64_t steps, std::uint64_t barriers) { tell_others({.kind = ShardCall::Kind::pause, .steps = steps, .barriers = barriers}, {}); }
  void stop(const StopAgreement::Vote& agreed) { tell_others({.kind = ShardCall::Kind::stop, .agreed = agreed}, {}); }
  // Goes to the server of this process.
  void look() {
    call_ = {.kind = ShardCall::Kind::look};
    say(job_.rank(), {});
    settle();
  }
  // Goes to all processes, including this one.
  void tell_all(ShardCall::Kind kind) {
    call_ = {.kind = kind};
    for (int p = 0; p < ranks_.processes(); ++p) say(p, {});
    settle();
  }

 private:
  struct UnderWay {
    transport::Ticket ticket;
    int process;
  };

  void ask(int owner, const ShardCall& call, const ConstPieces& pieces, const Pieces& answer) {
    call_ = call;
    for (const auto piece : answer) under_way_.push_back({messenger_->recv(piece, ranks_.server(owner), slots::answer), owner});
    say(owner, pieces);
    settle();
  }
  void tell_others(const ShardCall& call, const ConstPieces& pieces) {
    call_ = call;
    for (int p = 0; p < ranks_.processes(); ++p)
      if (p != job_.rank()) say(p, pieces);
    settle();
  }
  void say(int process, const ConstPieces& pieces) {
    const int server = ranks_.server(process);
    under_way_.push_back({messenger_->send(std::as_bytes(std::span{&call_, 1}), server, slots::call), process});
    for (const auto piece : pieces) under_way_.push_back({messenger_->send(piece, server, slots::payload), process});
  }
  // Waits until all answers have come, and all messages have left this process.
  void settle() {
    const auto none = [this] {
      for (; !under_way_.empty(); under_way_.pop_back()) {
        awaited_ = under_way_.back().process;
        if (!messenger_->done(under_way_.back().ticket)) return false;
      }
      if (messenger_->flushed()) return true;
      const int rank = messenger_->unsent_to();
      awaited_ = rank < 0 ? -1 : ranks_.process_of(rank);
      return false;
    };
    DeadlineWait wait{limits_behind_shard({deployment_.deadline, deployment_.late})};
    if (wait.wait([&](DeadlineWait::Time until) { return messenger_->wait(none, until); },
                  [this] { std::fprintf(stderr, "replicator: %s\n", waits("waits").c_str()); }))
      return;
    throw CommunicationError{waits("waited until the deadline") + ". It is stopped or slow: look there, or allow more time with --deadline", awaited_};
  }
  std::string waits(const std::string& how) const {
    const auto who = call_.group >= 0 ? placement_.text(call_.group) : job_.describe(job_.rank());
    const auto whom = awaited_ < 0 ? std::string{"a process that takes no messages"} : job_.describe(awaited_);
    if (call_.kind == ShardCall::Kind::report) return who + " " + how + " for " + whom + ", which is to hear of its step";
    if (call_.kind == ShardCall::Kind::vote) return who + " has caught a signal, and " + how + " for " + whom + " to say after which step it can stop";
    if (call_.kind > ShardCall::Kind::report) return who + " " + how + " for " + whom + " to listen";
    return who + " " + how + " for " + whom + ", at its shard " + std::to_string(call_.shard) + " of the variables";
  }

  const transport::Job& job_;
  const Deployment& deployment_;
  const AsyncPlacement& placement_;
  const ShardRanks& ranks_;
  // Buffers of messages. They must live as long as the messenger, because nothing waits for a message after an error.
  ShardCall call_;
  StopAgreement::Vote vote_;
  std::byte done_{};
  std::vector<std::byte> results_;
  std::vector<UnderWay> under_way_;
  int awaited_ = -1;  // the process for which settle() waits; -1 where that is not known
  std::unique_ptr<transport::Messenger> messenger_;
};

}  // namespace replicator::detail
