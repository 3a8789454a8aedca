// SPDX-License-Identifier: Apache-2.0
// Accepted connections with peers that have not yet identified themselves as processes of this job.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/join_request.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/token_authentication.hpp>
#include <replicator/job/trust.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/link.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// A connection with its handshake so far.
struct PendingConnection {
  Link link;
  RendezvousClock::time_point since;
  JoinRequest request{};
  std::optional<Nonce> challenge{};  // the nonce that was sent; the newcomer must answer with a proof
};

// The newcomer's description, with the address that it comes from.
inline std::string name_of(const PendingConnection& newcomer) {
  const auto& request = newcomer.request;
  return "process " + std::to_string(request.rank) + " (pid " + std::to_string(request.info.pid) + " on " + request.info.host +
         ", from " + address_of_peer(newcomer.link.descriptor()).text() + ")";
}

// Tells a newcomer why it is turned away, and closes the link.
inline void dismiss(Link& link, Refusal kind, int culprit, const std::string& sentence) {
  link.push(refusal(kind, culprit, sentence));
  link.pump_out();
  link.shut_output();
  link.close();
}

// Runs the handshake with newcomers, and turns away whatever does not speak as a process of the job. With a job token, a
// newcomer counts only after it has proven the token; without one, only where the kernel says that it belongs to this user.
// Until then nothing that it sends can harm the job, and process 0 proves nothing to it. With --insecure everybody counts.
//
//   process 0  heartbeat: the greeting; a newcomer without a token sees now whose the other end is
//   newcomer   hello: its description and a random number      token_authentication.hpp describes the proofs
//   process 0  challenge: a random number
//   newcomer   proof
//   process 0  proof
class PendingConnections {
 public:
  struct Answers {
    std::function<void(PendingConnection&)> believed;                            // takes the link, or closes it
    std::function<void(PendingConnection&, const std::string&)> has_token = {};  // but this process has none; empty: the newcomer is turned away
    std::function<void(FrameReader)> left_out = {};                              // another part of the job says that this process is left out
  };
  // All arguments must outlive this object.
  PendingConnections(const ProcessEnvironment& environment, const JobOptions& options, Answers answers)
      : environment_{environment}, options_{options}, answers_{std::move(answers)} {}
  PendingConnections(const PendingConnections&) = delete;
  PendingConnections& operator=(const PendingConnections&) = delete;

  void watch(std::vector<pollfd>& events) const {
    for (const auto& newcomer : newcomers_) events.push_back({newcomer.link.descriptor(), POLLIN, 0});
  }
  void admit(int listener) {
    for (std::size_t n = 0; n < most; ++n) {  // a flood of connections must not keep this process from listening
      FileDescriptor socket{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (!socket) return;
      set_no_delay(socket.get());
      if (newcomers_.size() >= most) hear();  // newcomers that have spoken already make room
      if (newcomers_.size() >= most) drop(newcomers_.front());
      std::erase_if(newcomers_, [](const PendingConnection& newcomer) { return !newcomer.link.open(); });
      newcomers_.push_back({Link{std::move(socket), longest_hello()}, RendezvousClock::now()});
      newcomers_.back().link.push(FrameWriter{FrameKind::heartbeat}.finish());
      newcomers_.back().link.pump_out();
    }
  }
  void hear() {
    for (auto& newcomer : newcomers_) hear(newcomer);
    std::erase_if(newcomers_, [](const PendingConnection& newcomer) { return !newcomer.link.open(); });
  }
  void clear() { newcomers_.clear(); }
  bool any() const { return !newcomers_.empty(); }
  // The foreign connections so far, as an addition to an error message; empty where there were none.
  std::string others_sentence() const {
    std::string result;
    if (strangers_ > 0) result += "; " + std::to_string(strangers_) + " connections did not speak as a process of a job";
    for (const auto& sentence : turned_away_) result += "; turned away: " + sentence;
    return result;
  }

 private:
  // Connections that say nothing must not use up descriptors, memory or places. Each is closed after options.dead_after.
  static constexpr std::size_t most = 128;
  static constexpr std::size_t most_remembered = 4;

  // Room for what a process knows of some epochs.
  std::uint64_t longest_hello() const { return 65536 + 64 * static_cast<std::uint64_t>(environment_.world_size); }

  void hear(PendingConnection& newcomer) {
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
        else if (kind == FrameKind::left_out && answers_.left_out)
          answers_.left_out(reader), newcomer.link.close();
        else
          drop(newcomer);
      }
    } catch (const CommunicationError&) {  // cut short: no process of the job
      drop(newcomer);
    }
    // No frame of this protocol: a foreign program.
    if (newcomer.link.open() && (!good || RendezvousClock::now() - newcomer.since > options_.dead_after)) drop(newcomer);
  }

  void drop(PendingConnection& newcomer) {
    if (!mentioned_ && newcomer.link.received() > 0) {
      mentioned_ = true;
      WaitReport::say("closed a connection from " + address_of_peer(newcomer.link.descriptor()).text() + " that did not speak as a process of a job (said once)");
    }
    newcomer.link.close();
    ++strangers_;
  }

  void greet(PendingConnection& newcomer, FrameReader& fields) {
    auto& request = newcomer.request;
    request = JoinRequest::read(fields);
    if (request.job_name != environment_.job_name) {
      newcomer.link.push(
          refusal(Refusal::elsewhere, 0, "process 0 there belongs to the job \"" + environment_.job_name + "\""));
      newcomer.link.pump_out();
      newcomer.link.close();
      return;
    }
    const bool has_token = !request.nonce.empty();
    if (believes_only_this_user(environment_))
      if (const auto objection = objection_to_peer(newcomer.link.descriptor(), "a process"); !objection.empty()) return turn_away(newcomer, objection);
    if (environment_.job_token.empty()) {
      if (!has_token) return answers_.believed(newcomer);
      const auto sentence = name_of(newcomer) + " was given a job token, but process 0 was not: " + advice();
      return answers_.has_token ? answers_.has_token(newcomer, sentence) : turn_away(newcomer, sentence);
    }
    if (!has_token)
      return turn_away(newcomer, "process 0 was given a job token, but " + name_of(newcomer) + " was not: " + advice());
    if (request.nonce.size() != sizeof(Nonce)) return drop(newcomer);
    newcomer.challenge = cryptography().random();
    newcomer.link.push(FrameWriter{FrameKind::challenge}.blob(*newcomer.challenge).finish());
    newcomer.link.pump_out();
  }

  void examine(PendingConnection& newcomer, FrameReader& fields) {
    const auto proof = [&](Prover prover) {
      return proof_of(environment_.job_token, prover, newcomer.request, *newcomer.challenge);
    };
    if (!equal_macs(proof(Prover::newcomer), fields.blob()))
      return turn_away(newcomer, name_of(newcomer) + " has another job token than process 0: " + advice());
    newcomer.link.push(FrameWriter{FrameKind::proof}.blob(proof(Prover::process_0)).finish());
    answers_.believed(newcomer);
  }

  // Reports the sentence to the newcomer and on stderr. An error at the deadline repeats it.
  void turn_away(PendingConnection& newcomer, const std::string& sentence) {
    dismiss(newcomer.link, Refusal::token, 0, sentence);
    if (turned_away_.size() >= most_remembered || std::find(turned_away_.begin(), turned_away_.end(), sentence) != turned_away_.end()) return;
    turned_away_.push_back(sentence);
    WaitReport::say("turned away: " + sentence);
  }

  static std::string advice() { return "give all processes the same (REPLICATOR_JOB_TOKEN or --job-token-file), or none"; }

  const ProcessEnvironment& environment_;
  const JobOptions& options_;
  Answers answers_;
  std::vector<PendingConnection> newcomers_;  // oldest first
  std::uint64_t strangers_ = 0;
  bool mentioned_ = false;  // a stranger that sent something
  std::vector<std::string> turned_away_;
};

}  // namespace replicator::detail::transport::detail
