// SPDX-License-Identifier: Apache-2.0
// AuditGuests: what a process needs to repeat the work of another process's replicas in audited steps: their input and
// their replica-local variables. The process before sends them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/collectives/connect/host_transport.hpp>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/engine/host_step.hpp>
#include <replicator/engine/step_listener.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/transport/messenger.hpp>

namespace replicator::detail {

class AuditGuests {
 public:
  // Collective. All arguments outlive this object.
  AuditGuests(const Deployment& deployment, transport::Job& job, const Placement& placement)
      : deployment_{deployment}, job_{job}, placement_{placement}, from_{placement.process_of(placement.audited_by(0))}, to_{process_after(placement)}, variables_{deployment.seed, 1, placement.blocks().count(placement.audited_by(0)), placement.blocks().begin(placement.audited_by(0))} {
    if (job.size() == 1) return;
    std::vector<int> processes(static_cast<std::size_t>(job.size()));
    std::iota(processes.begin(), processes.end(), 0);
    messenger_ = std::move(collectives::connect_messengers(deployment.transport, job, processes).at(0));
  }

  // True if there are guests on this process.
  bool here() const { return from_ != job_.rank(); }
  // The process that repeats the work of this process's last team.
  int sent_to() const { return to_; }
  // The replica-local variables of the guests, counted from the first of them.
  VariableStore& variables() { return variables_; }
  const VariableStore& variables() const { return variables_; }

  // Collective. `words`: about the next elements of this process's replicas.
  void exchange(SecondComputation& second, const StepMoment& moment, std::span<const std::uint64_t> words) {
    if (!messenger_ || !here()) return;  // a job has no guests, or every process has some
    const int last = placement_.teams() - 1;
    out_.clear();
    for (int r = placement_.first_replica(last); r < placement_.first_replica(last) + placement_.replicas(last); ++r) {
      const auto at = static_cast<std::size_t>(r);
      for (const auto& array : moment.inputs[at]) pack(array.bytes());
      pack(std::as_bytes(words.subspan(at, 1)));
      for (const auto& name : variables_.names()) pack(moment.variables.value(name, r).bytes());
    }
    make_room(second, moment);
    std::size_t bytes = 0;
    for_each_value(second, [&](std::span<std::byte> value) { bytes += value.size(); });
    in_.resize(bytes);
    send_and_receive();
    const auto* from = in_.data();
    for_each_value(second, [&](std::span<std::byte> value) {
      if (!value.empty()) std::memcpy(value.data(), from, value.size());
      from += value.size();
    });
  }

 private:
  static int process_after(const Placement& placement) {
    return placement.process_of((placement.first_team() + placement.teams()) % placement.blocks().ranks());
  }
  void pack(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  // The guests' elements have the types of those of a replica with an equal graph.
  void make_room(SecondComputation& second, const StepMoment& moment) const {
    const auto& classes = second.classes[0];
    second.guest_inputs.resize(classes.size());
    second.guest_words.resize(classes.size());
    for (std::size_t r = 0; r < classes.size(); ++r) {
      const auto& known = moment.resolution.class_of;
      const auto& like = moment.inputs[static_cast<std::size_t>(std::find(known.begin(), known.end(), classes[r]) - known.begin())];
      auto& mine = second.guest_inputs[r];
      const bool fits = std::equal(mine.begin(), mine.end(), like.begin(), like.end(), [](const AnyArray& a, const AnyArray& b) { return a.type() == b.type(); });
      if (fits) continue;
      mine.clear();
      for (const auto& array : like) mine.emplace_back(array.type());
    }
  }
  // In the order of the message.
  template <class F>
  void for_each_value(SecondComputation& second, F f) {
    const auto names = variables_.names();
    for (std::size_t r = 0; r < second.guest_inputs.size(); ++r) {
      for (auto& array : second.guest_inputs[r]) f(std::span{array.data(), array.size_bytes()});
      f(std::as_writable_bytes(std::span{&second.guest_words[r], 1}));
      for (const auto& name : names) {
        auto& value = variables_.overwrite(name, static_cast<int>(r));
        f(std::span{value.data(), value.size_bytes()});
      }
    }
  }
  void send_and_receive() {
    const transport::Slot slot{0, 0, 0};
    struct UnderWay {
      transport::Ticket ticket;
      int process;
      const char* what;
    };
    std::vector<UnderWay> under_way{{messenger_->send(out_, to_, slot), to_, "take"}};
    under_way.push_back({messenger_->recv(in_, from_, slot), from_, "give"});
    UnderWay awaited = under_way.back();  // in the end the one that was sent
    const auto none = [&] {               // no ticket is asked again once it is done
      for (; !under_way.empty(); under_way.pop_back()) {
        awaited = under_way.back();
        if (!messenger_->done(awaited.ticket)) return false;
      }
      return messenger_->flushed();
    };
    const auto waits = [&](const std::string& how) {
      return job_.describe(job_.rank()) + " " + how + " for " + job_.describe(awaited.process) + ", which is to " + awaited.what +
             " the input of replicas whose step is computed again for --audit";
    };
    DeadlineWait wait{{deployment_.deadline, deployment_.late}};
    if (wait.wait([&](DeadlineWait::Time until) { return messenger_->wait(none, until); }, [&] { std::fprintf(stderr, "replicator: %s\n", waits("waits").c_str()); })) return;
    throw CommunicationError{waits("waited until the deadline") + ". It is stopped or slow: look there, or allow more time with --deadline", awaited.process};
  }

  const Deployment& deployment_;
  transport::Job& job_;
  const Placement& placement_;
  int from_, to_;
  VariableStore variables_;
  std::vector<std::byte> out_, in_;                  // must live as long as the messenger, because nothing waits for a message after an error
  std::unique_ptr<transport::Messenger> messenger_;  // null in a job of one process
};

}  // namespace replicator::detail
