// SPDX-License-Identifier: Apache-2.0
// The server side of the rendezvous: process 0 listens until all other processes of its job have connected.
#pragma once

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/job/etcd/directory.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/join_request.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/pending_connections.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/survivors.hpp>
#include <replicator/job/trust.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/link.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// Listens until all processes are here, then welcomes them. Foreign connections are turned away (pending_connections.hpp).
class RendezvousServer {
 public:
  // `survivors`: in a regroup, the processes that are still expected; must outlive this object.
  RendezvousServer(const ProcessEnvironment& environment, const JobOptions& options, Survivors* survivors = nullptr)
      : environment_{environment},
        options_{options},
        survivors_{survivors},
        here_(static_cast<std::size_t>(environment.world_size)),
        newcomers_{environment_, options_, answers()},
        report_{options.report_after} {
    if (!environment_.listener)
      environment_.listener = std::make_shared<FileDescriptor>(
          listen_on(environment_.master_port, listening_address(environment_), environment_.rank));
    membership_.processes.resize(here_.size());
    membership_.links.resize(here_.size());
    here_[own()] = true;
    membership_.processes[own()] = this_process();
  }

  Membership receive() {
    say_who_can_come();
    auto until = RendezvousClock::now() + options_.connect_deadline;
    for (bool extended = false;;) {
      const bool late = RendezvousClock::now() >= until;
      if (late) forget_lost(), hear();  // this process may have been stopped until now
      if (membership_.going_on || overtaken()) return running_elsewhere();
      if (survivors_) survivors_->strike(here_, late, [this] { hear(), beat(); });
      if (complete(until)) break;
      if (late && !survivors_ && !extended && newcomers_.any()) {
        // They came while this process was stopped. They have been greeted, and now they answer.
        extended = true;
        until = RendezvousClock::now() + options_.dead_after;
        continue;
      }
      if (late && !survivors_) fail<CommunicationError>(Refusal::failure, missing_sentence(), first_missing());
      if (survivors_ && survivors_->found_lower()) {
        membership_ = {};
        membership_.lower = true;
        return std::move(membership_);
      }
      report_.look([this] { return waiting_sentence(); });
      wait(late ? until + options_.dead_after : until);
      forget_lost();
      hear();
    }
    if (survivors_) part_from_missing();
    return welcome();
  }

 private:
  PendingConnections::Answers answers() {
    PendingConnections::Answers result{[this](PendingConnection& newcomer) { settle(newcomer); },
                                       [this](PendingConnection& newcomer, const std::string& sentence) { refuse_token(newcomer, sentence); }};
    if (survivors_) result.left_out = [this](FrameReader fields) { survivors_->hear(fields); };
    return result;
  }
  std::size_t own() const { return static_cast<std::size_t>(environment_.rank); }
  // The etcd leads to a running job.
  bool overtaken() const { return !survivors_ && environment_.directory && environment_.directory->overtaken(); }
  Membership running_elsewhere() {
    membership_ = {};
    membership_.going_on = true;
    return std::move(membership_);
  }
  bool undecided() const { return undecided_since_ != RendezvousClock::time_point{}; }
  bool complete(RendezvousClock::time_point until) {
    if (!survivors_) return std::find(here_.begin(), here_.end(), false) == here_.end();
    const auto now = RendezvousClock::now();
    if (survivors_->told()) return true;
    if (now < until && survivors_->awaits(here_)) return false;
    if (survivors_->may_go_on(here_)) return true;
    // This part may not go on yet. The others may come after all, or end; and at an arbiter a majority goes first. It waits for
    // absent processes until the same deadline.
    if (!undecided()) undecided_since_ = now;
    if (survivors_->lets_majority_go_first(here_)) return now >= until + options_.dead_after;
    return now >= until || now - undecided_since_ >= options_.dead_after;
  }
  // In a regroup: shows those who are here that this process lives. After options.dead_after of silence they meet elsewhere.
  void beat() {
    const auto now = RendezvousClock::now();
    if (now < next_beat_) return;
    next_beat_ = now + options_.dead_after / 6;
    for (auto& link : membership_.links) {
      link.push(FrameWriter{FrameKind::heartbeat}.finish());
      link.pump_out();
    }
  }
  void hear() {
    newcomers_.admit(environment_.listener->get());
    newcomers_.hear();
  }

  // Tells the missing processes that they are left out. Where another part of the job has told this process the same, it
  // must not continue.
  void part_from_missing() {
    try {
      if (!survivors_->told()) survivors_->part_from_missing(here_, [this] { beat(); });
      hear();
      survivors_->settle(here_);
    } catch (const CommunicationError& error) {
      fail<CommunicationError>(Refusal::failure, error.what(), error.culprit());
    }
    for (std::size_t r = 0; r < here_.size(); ++r) {
      if (here_[r]) continue;
      membership_.processes[r] = {};
      membership_.links[r].close();
    }
  }

  void wait(RendezvousClock::time_point until) {
    std::vector<pollfd> events{{environment_.listener->get(), POLLIN, 0}};
    for (const auto& link : membership_.links)
      if (link.open()) events.push_back({link.descriptor(), POLLIN, 0});
    newcomers_.watch(events);
    ::poll(events.data(), events.size(), remaining_ms(until, 200));
  }

  // A process that broke its connection may come again. No process has anything to send before it is welcome.
  void forget_lost() {
    FrameKind kind{};
    Bytes fields;
    for (std::size_t r = 0; r < here_.size(); ++r)
      if (here_[r] && r != own() && (!membership_.links[r].pump_in() || membership_.links[r].next(kind, fields))) {
        here_[r] = false;
        membership_.links[r].close();
      }
  }

  // Process 0 has no token, but believes a newcomer that has one. With that one the job cannot begin.
  [[noreturn]] void refuse_token(PendingConnection& newcomer, const std::string& sentence) {
    const auto rank = static_cast<int>(newcomer.request.rank);
    membership_.links.push_back(std::move(newcomer.link));
    fail<BuildError>(Refusal::token, sentence, rank);
  }

  // The newcomer is believed and takes its place.
  void settle(PendingConnection& newcomer) {
    const auto world = newcomer.request.world_size;
    const auto rank = newcomer.request.rank;
    auto& info = newcomer.request.info;
    const auto number = static_cast<int>(rank);
    if (survivors_ && rank < here_.size() && (survivors_->parted(rank) || (survivors_->gone(rank) && !undecided()) || survivors_->life(rank) != newcomer.request.life))
      return dismiss(newcomer.link, Refusal::failure, number, left_out_sentence(number, info));
    if (!survivors_ && newcomer.request.life == JoinRequest::running_job) {
      membership_.going_on = true;
      return newcomer.link.close();
    }
    if (world == here_.size() && rank == own())
      return dismiss(newcomer.link, Refusal::contradiction, number, two_sentence(membership_.processes[rank], newcomer.request));
    if (survivors_ && rank < here_.size()) survivors_->learn(newcomer.request.epochs);
    membership_.links.push_back(std::move(newcomer.link));  // so that fail() tells this one too
    if (world != here_.size() || rank >= world)
      fail<BuildError>(Refusal::contradiction,
                       "process " + std::to_string(rank) + " (pid " + std::to_string(info.pid) + " on " + info.host +
                           ") was started with WORLD_SIZE=" + std::to_string(world) + ", process 0 with WORLD_SIZE=" +
                           std::to_string(here_.size()) + ": all processes of a job need the same, and a RANK each",
                       number);
    auto& place = membership_.links[rank];
    if (here_[rank] && place.pump_in())
      fail<BuildError>(Refusal::contradiction, two_sentence(membership_.processes[rank], newcomer.request), number);
    place = std::move(membership_.links.back());
    membership_.links.pop_back();
    place.push(FrameWriter{FrameKind::heartbeat}.finish());  // says "you are at the right address"
    place.pump_out();
    here_[rank] = true;
    membership_.processes[rank] = std::move(info);
  }

  static std::string two_sentence(const ProcessInfo& here, const JoinRequest& other) {
    return "two processes were started with RANK=" + std::to_string(other.rank) + ": pid " + std::to_string(here.pid) + " on " + here.host +
           " and pid " + std::to_string(other.info.pid) + " on " + other.info.host + "; each needs its own. Where they are of two jobs, this address is taken: give each job a MASTER_PORT or a REPLICATOR_JOB of its own";
  }

  template <class Failure>
  [[noreturn]] void fail(Refusal kind, const std::string& sentence, int culprit) {
    for (auto& link : membership_.links) {
      link.push(refusal(kind, culprit, sentence));
      link.pump_out();
      link.shut_output();
    }
    if constexpr (std::is_same_v<Failure, CommunicationError>) throw CommunicationError{sentence, culprit};
    throw BuildError{sentence};
  }

  int first_missing() const { return static_cast<int>(std::find(here_.begin(), here_.end(), false) - here_.begin()); }

  std::string ranks(bool here) const {
    std::string result;
    for (std::size_t r = 0; r < here_.size(); ++r)
      if (here_[r] == here) result += (result.empty() ? "" : ", ") + std::to_string(r);
    return result;
  }

  std::string missing_sentence() const {
    const auto port = std::to_string(port_of(environment_.listener->get()));
    return "process " + ranks(false) + " did not come to port " + port + " of " + membership_.processes[0].host +
           " within " + seconds_text(options_.connect_deadline) + " (here: " + ranks(true) + " of " +
           std::to_string(here_.size()) + newcomers_.others_sentence() +
           "): start it with its RANK and WORLD_SIZE=" + std::to_string(here_.size()) +
           ", or raise the connect deadline" + (believes_only_this_user(environment_) && there_may_be_others() ? "; " + loopback_sentence() : "");
  }

  std::string waiting_sentence() const {
    return "process 0 still waits at " + address_of(environment_.listener->get()).with_port() + " for process " +
           ranks(false) + " (here: " + ranks(true) + " of " + std::to_string(here_.size()) + newcomers_.others_sentence() + ")";
  }

  // Whether other machines may know where process 0 is.
  bool there_may_be_others() const { return environment_.directory || !only_this_machine_knows(environment_.master_address); }
  // Says whether processes of other machines can come, and who.
  void say_who_can_come() const {
    if (survivors_ || !environment_.job_token.empty() || !there_may_be_others()) return;
    const auto here = address_of(environment_.listener->get());
    if (environment_.insecure && !loopback_address(here.text()))
      WaitReport::say("warning: process 0 listens at " + here.with_port() +
                      " and believes everybody (--insecure), so whoever reaches it can take part in the job or end it");
    if (!environment_.insecure) WaitReport::say(loopback_sentence());
  }
  std::string loopback_sentence() const {
    return "process 0 has no job token, so it listens at " + address_of(environment_.listener->get()).with_port() +
           " only, where processes of other machines cannot reach it. If there are any, " + token_advice;
  }

  Membership welcome() {
    while (::getrandom(&membership_.token, sizeof membership_.token, 0) != sizeof membership_.token) {
    }
    FrameWriter frame{FrameKind::welcome};
    frame.number(membership_.token);
    for (const auto& info : membership_.processes) frame.number(static_cast<std::uint64_t>(info.pid)).text(info.host);
    frame.blob(survivors_ ? survivors_->knowledge() : Bytes{});
    for (auto& link : membership_.links) {
      link.raise_limit();
      link.push(frame.finish());
      link.pump_out();  // the rest goes with the first heartbeat
    }
    return std::move(membership_);
  }

  ProcessEnvironment environment_;
  JobOptions options_;
  Survivors* survivors_;  // null where the job meets for the first time
  std::vector<bool> here_;
  RendezvousClock::time_point undecided_since_{};  // zero while processes are expected
  RendezvousClock::time_point next_beat_{};
  Membership membership_;
  PendingConnections newcomers_;
  WaitReport report_;
};

}  // namespace replicator::detail::transport::detail
