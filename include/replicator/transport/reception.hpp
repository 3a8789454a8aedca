// SPDX-License-Identifier: Apache-2.0
// Process 0 receives the other processes of its job.
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
#include <replicator/transport/acquaintance.hpp>
#include <replicator/transport/frame.hpp>
#include <replicator/transport/introduction.hpp>
#include <replicator/transport/job_options.hpp>
#include <replicator/transport/link.hpp>
#include <replicator/transport/proof.hpp>
#include <replicator/transport/rendezvous.hpp>
#include <replicator/transport/roll.hpp>
#include <replicator/transport/tcp.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::transport::detail {

// Listens until all are here; whoever does not speak as one of them is sent away. Where there is a job token a newcomer
// counts only once it has proven it: until then nothing that it says can end the job, and process 0 proves nothing to
// it.
//
//   newcomer   hello: who it is, a random number          the proofs: see proof.hpp
//   process 0  challenge: a random number
//   newcomer   proof
//   process 0  proof, then, when all are here, welcome
class Reception {
 public:
  // `roll`: where the job begins again, who is still waited for; it outlives this.
  Reception(const ProcessEnvironment& environment, const JobOptions& options, Roll* roll = nullptr)
      : environment_{environment},
        options_{options},
        roll_{roll},
        here_(static_cast<std::size_t>(environment.world_size)),
        report_{options.report_after} {
    if (!environment_.listener)
      environment_.listener = std::make_shared<FileDescriptor>(
          listen_on(environment_.master_port, listening_address(environment_.interface, environment_.master_address)));
    meeting_.processes.resize(here_.size());
    meeting_.links.resize(here_.size());
    here_[own()] = true;
    meeting_.processes[own()] = this_process();
  }

  Meeting receive() {
    warn_if_open();
    const auto until = MeetingClock::now() + options_.connect_deadline;
    do {
      const bool late = MeetingClock::now() >= until;
      if (late && !roll_) fail<CommunicationError>(Refusal::failure, missing_sentence(), first_missing());
      if (roll_) roll_->strike(here_, late);
      report_.look([this] { return waiting_sentence(); });
      listen_for(until);
    } while (!complete());
    if (roll_) part_from_missing();
    return welcome();
  }

 private:
  struct Newcomer {
    Link link;
    MeetingClock::time_point since;
    Introduction introduction{};
    std::optional<Nonce> challenge{};  // sent: it is to answer with a proof
  };
  // Those that say nothing must not use up descriptors, memory or the place of others. Each has until
  // options.dead_after.
  static constexpr std::size_t most_newcomers = 128;
  static constexpr std::uint64_t longest_hello = 65536;
  static constexpr std::size_t most_remembered = 4;

  std::size_t own() const { return static_cast<std::size_t>(environment_.rank); }
  bool complete() const {
    if (roll_ && roll_->told()) return true;
    for (std::size_t r = 0; r < here_.size(); ++r)
      if (!here_[r] && !(roll_ && roll_->gone(r))) return false;
    return true;
  }
  void listen_for(MeetingClock::time_point until) {
    wait(until);
    admit();
    forget_lost();
    hear_newcomers();
  }

  // Those who are missing are told; whoever is told by another part of the job itself must not go on.
  void part_from_missing() {
    try {
      if (!roll_->told()) roll_->part_from_missing(here_);
      listen_for(MeetingClock::now());
      roll_->settle(here_);
    } catch (const CommunicationError& error) {
      fail<CommunicationError>(Refusal::failure, error.what(), error.culprit());
    }
    for (std::size_t r = 0; r < here_.size(); ++r) {
      if (here_[r]) continue;
      meeting_.processes[r] = {};
      meeting_.links[r].close();
    }
  }

  void wait(MeetingClock::time_point until) {
    std::vector<pollfd> events{{environment_.listener->get(), POLLIN, 0}};
    for (const auto& link : meeting_.links)
      if (link.open()) events.push_back({link.descriptor(), POLLIN, 0});
    for (const auto& newcomer : newcomers_) events.push_back({newcomer.link.descriptor(), POLLIN, 0});
    ::poll(events.data(), events.size(), remaining_ms(until, 200));
  }

  void admit() {
    for (std::size_t n = 0; n < most_newcomers; ++n) {  // a flood must not keep us from listening
      FileDescriptor socket{::accept4(environment_.listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (!socket) return;
      set_no_delay(socket.get());
      if (newcomers_.size() >= most_newcomers) hear_newcomers();  // who has spoken already is not in the way
      if (newcomers_.size() >= most_newcomers) drop(newcomers_.front());
      std::erase_if(newcomers_, [](const Newcomer& newcomer) { return !newcomer.link.open(); });
      newcomers_.push_back({Link{std::move(socket), longest_hello}, MeetingClock::now()});
    }
  }

  // A process that broke its connection may come again. None has anything to say before it is welcome.
  void forget_lost() {
    FrameKind kind{};
    Bytes fields;
    for (std::size_t r = 0; r < here_.size(); ++r)
      if (here_[r] && r != own() && (!meeting_.links[r].pump_in() || meeting_.links[r].next(kind, fields))) {
        here_[r] = false;
        meeting_.links[r].close();
      }
  }

  void hear_newcomers() {
    for (auto& newcomer : newcomers_) hear(newcomer);
    std::erase_if(newcomers_, [](const Newcomer& newcomer) { return !newcomer.link.open(); });
  }

  void hear(Newcomer& newcomer) {
    const bool good = newcomer.link.pump_in();
    FrameKind kind{};
    Bytes fields;
    try {
      while (newcomer.link.open() && newcomer.link.next(kind, fields)) {
        FrameReader reader{fields};
        if (kind == FrameKind::hello && !newcomer.challenge)
          greet(newcomer, reader);
        else if (kind == FrameKind::proof && newcomer.challenge)
          examine(newcomer, reader);
        else if (kind == FrameKind::left_out && roll_)
          roll_->hear(reader), newcomer.link.close();
        else
          drop(newcomer);
      }
    } catch (const CommunicationError&) {  // cut short: not one of us
      drop(newcomer);
    }
    // No frame of ours: somebody else's program.
    if (newcomer.link.open() && (!good || MeetingClock::now() - newcomer.since > options_.dead_after)) drop(newcomer);
  }

  void drop(Newcomer& newcomer) {
    newcomer.link.close();
    ++strangers_;
  }

  void greet(Newcomer& newcomer, FrameReader& fields) {
    auto& introduction = newcomer.introduction;
    introduction = Introduction::read(fields);
    if (introduction.job_name != environment_.job_name) {
      newcomer.link.push(
          refusal(Refusal::elsewhere, 0, "process 0 there belongs to the job \"" + environment_.job_name + "\""));
      newcomer.link.pump_out();
      newcomer.link.close();
      return;
    }
    const bool has_token = !introduction.nonce.empty();
    if (environment_.job_token.empty()) {
      if (has_token) refuse_token(newcomer);
      return settle(newcomer);
    }
    if (!has_token)
      return turn_away(newcomer,
                       "process 0 was given a job token, but " + name_of(newcomer) + " was not: " + token_advice());
    if (introduction.nonce.size() != sizeof(Nonce)) return drop(newcomer);
    newcomer.challenge = cryptography().random();
    newcomer.link.push(FrameWriter{FrameKind::challenge}.blob(*newcomer.challenge).finish());
    newcomer.link.pump_out();
  }

  void examine(Newcomer& newcomer, FrameReader& fields) {
    const auto proof = [&](Prover prover) {
      return proof_of(environment_.job_token, prover, newcomer.introduction, *newcomer.challenge);
    };
    if (!cryptography().equal(proof(Prover::newcomer), fields.blob()))
      return turn_away(newcomer, name_of(newcomer) + " has another job token than process 0: " + token_advice());
    newcomer.link.push(FrameWriter{FrameKind::proof}.blob(proof(Prover::process_0)).finish());
    settle(newcomer);
  }

  // Where process 0 has no token it believes everybody, also that the job cannot begin.
  [[noreturn]] void refuse_token(Newcomer& newcomer) {
    const auto sentence = name_of(newcomer) + " was given a job token, but process 0 was not: " + token_advice();
    const auto rank = static_cast<int>(newcomer.introduction.rank);
    meeting_.links.push_back(std::move(newcomer.link));
    fail<BuildError>(Refusal::token, sentence, rank);
  }

  // Its sentence is told to whoever should have come, now on stderr and at the deadline in the error.
  void turn_away(Newcomer& newcomer, const std::string& sentence) {
    newcomer.link.push(refusal(Refusal::token, 0, sentence));
    newcomer.link.pump_out();
    newcomer.link.shut_output();
    newcomer.link.close();
    if (turned_away_.size() >= most_remembered) return;
    turned_away_.push_back(sentence);
    WaitReport::say("turned away: " + sentence);
  }

  static std::string token_advice() {
    return "give all processes the same (REPLICATOR_JOB_TOKEN or --job-token-file), or none";
  }

  static std::string name_of(const Newcomer& newcomer) {
    const auto& introduction = newcomer.introduction;
    return "process " + std::to_string(introduction.rank) + " (pid " + std::to_string(introduction.info.pid) + " on " +
           introduction.info.host + ", from " + address_of_peer(newcomer.link.descriptor()).text() + ")";
  }

  // It is believed: it takes its place.
  void settle(Newcomer& newcomer) {
    const auto world = newcomer.introduction.world_size;
    const auto rank = newcomer.introduction.rank;
    auto& info = newcomer.introduction.info;
    if (roll_ && rank < here_.size() && roll_->gone(rank)) {
      newcomer.link.push(refusal(Refusal::failure, static_cast<int>(rank), left_out_sentence(static_cast<int>(rank), info)));
      newcomer.link.pump_out();
      newcomer.link.shut_output();
      return newcomer.link.close();
    }
    meeting_.links.push_back(std::move(newcomer.link));  // so that fail() tells this one too
    if (world != here_.size() || rank == own() || rank >= world)
      fail<BuildError>(Refusal::contradiction,
                       "process " + std::to_string(rank) + " (pid " + std::to_string(info.pid) + " on " + info.host +
                           ") was started with WORLD_SIZE=" + std::to_string(world) + ", process 0 with WORLD_SIZE=" +
                           std::to_string(here_.size()) + ": all processes of a job need the same, and a RANK each",
                       static_cast<int>(rank));
    auto& place = meeting_.links[rank];
    if (here_[rank] && place.pump_in())
      fail<BuildError>(Refusal::contradiction,
                       "two processes were started with RANK=" + std::to_string(rank) + ": pid " +
                           std::to_string(meeting_.processes[rank].pid) + " on " + meeting_.processes[rank].host +
                           " and pid " + std::to_string(info.pid) + " on " + info.host + "; each needs its own",
                       static_cast<int>(rank));
    place = std::move(meeting_.links.back());
    meeting_.links.pop_back();
    place.push(FrameWriter{FrameKind::heartbeat}.finish());  // "you are at the right address"
    place.pump_out();
    here_[rank] = true;
    meeting_.processes[rank] = std::move(info);
  }

  template <class Failure>
  [[noreturn]] void fail(Refusal kind, const std::string& sentence, int culprit) {
    for (auto& link : meeting_.links) {
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

  // What came that was none of the missing processes; empty where nothing did.
  std::string others_sentence() const {
    std::string result;
    if (strangers_ > 0)
      result += "; " + std::to_string(strangers_) + " connections did not speak as a process of a job";
    for (const auto& sentence : turned_away_) result += "; turned away: " + sentence;
    return result;
  }

  std::string missing_sentence() const {
    const auto port = std::to_string(port_of(environment_.listener->get()));
    return "process " + ranks(false) + " did not come to port " + port + " of " + meeting_.processes[0].host +
           " within " + seconds_text(options_.connect_deadline) + " (here: " + ranks(true) + " of " +
           std::to_string(here_.size()) + others_sentence() +
           "): start it with its RANK and WORLD_SIZE=" + std::to_string(here_.size()) +
           ", or raise the connect deadline";
  }

  std::string waiting_sentence() const {
    return "process 0 still waits at " + address_of(environment_.listener->get()).with_port() + " for process " +
           ranks(false) + " (here: " + ranks(true) + " of " + std::to_string(here_.size()) + others_sentence() + ")";
  }

  // Without a token whoever reaches the port can take part in the job, or end it.
  void warn_if_open() const {
    const auto addresses = split_addresses(environment_.master_address);
    const auto here = address_of(environment_.listener->get());
    const bool local = loopback_address(here.text()) ||
                       std::all_of(addresses.begin(), addresses.end(),
                                   [](const auto& text) { return loopback_address(text).has_value(); });
    if (environment_.job_token.empty() && !local)
      WaitReport::say("warning: process 0 listens at " + here.with_port() +
                      " without a job token, so whoever reaches it can take part in the job or end it; set "
                      "REPLICATOR_JOB_TOKEN or --job-token-file");
  }

  Meeting welcome() {
    while (::getrandom(&meeting_.token, sizeof meeting_.token, 0) != sizeof meeting_.token) {
    }
    FrameWriter frame{FrameKind::welcome};
    frame.number(meeting_.token);
    for (const auto& info : meeting_.processes) frame.number(static_cast<std::uint64_t>(info.pid)).text(info.host);
    for (auto& link : meeting_.links) {
      link.raise_limit();
      link.push(frame.finish());
      link.pump_out();  // what does not fit now goes with the first heartbeat
    }
    return std::move(meeting_);
  }

  ProcessEnvironment environment_;
  JobOptions options_;
  Roll* roll_;  // null where the job meets for the first time
  std::vector<bool> here_;
  Meeting meeting_;
  std::vector<Newcomer> newcomers_;  // the oldest first
  WaitReport report_;
  std::uint64_t strangers_ = 0;
  std::vector<std::string> turned_away_;
};

}  // namespace replicator::transport::detail
