// SPDX-License-Identifier: Apache-2.0
// The client side of the rendezvous: a process connects to process 0 and proves that it belongs to the job.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/core/printable.hpp>
#include <replicator/job/etcd/directory.hpp>
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
#include <thread>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// Tries the addresses in turn until process 0 has welcomed this process. With a job token, no answer counts before process
// 0 has proven that it has the token too. The only exception is the answer that the token is wrong. Without a token, this
// process says nothing before it knows that the other end belongs to its user, so no answer of a stranger counts.
class RendezvousClient {
 public:
  // `epochs`: in a regroup, what this process knows of them.
  RendezvousClient(const ProcessEnvironment& environment, const JobOptions& options, Bytes epochs = {})
      : environment_{environment},
        options_{options},
        epochs_{std::move(epochs)},
        report_{options.report_after} {
    if (!environment.interface.empty()) from_ = addresses_of(environment.interface);
    if (!environment.directory) use_addresses();
  }

  Membership arrive() {
    const auto until = RendezvousClock::now() + options_.connect_deadline;
    while (RendezvousClock::now() < until) {
      look_up();
      report();
      for (std::size_t i = 0; i < addresses_.size(); ++i) {
        auto& last = attempts_[i].last;
        const std::chrono::milliseconds limit{remaining_ms(until, attempt_ms)};
        Link link{connect_to(addresses_[i], environment_.master_port, limit, last, from_), longest_frame()};
        report();
        if (!link.open()) continue;
        last = address_of_peer(link.descriptor()).with_port() + ": connected, but no answer yet";
        begin(link);
        if (listen(link, until, attempts_[i])) return std::move(membership_);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{remaining_ms(until, environment_.directory ? look_up_ms : 20)});
    }
    fail();
  }

  // Tries each address once. Returns nothing where nobody receives this process, or the receiver is silent for options.dead_after.
  std::optional<Membership> try_connect() {
    const auto until = RendezvousClock::now() + options_.connect_deadline;
    silence_ = options_.dead_after;
    look_up();
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      Link link{connect_to(addresses_[i], environment_.master_port, std::chrono::milliseconds{attempt_ms}, attempts_[i].last, from_),
                longest_frame()};
      if (!link.open()) continue;
      begin(link);
      if (listen(link, until, attempts_[i])) return std::move(membership_);
    }
    return {};
  }

  // Whether the etcd says that nobody listens for this job, as of the latest attempt.
  bool nobody_there() const { return !entry_ && etcd_error_.empty(); }
  // Says on stderr, now and then, what this process looks for.
  void report() {
    report_.look([this] {
      return "process " + std::to_string(environment_.rank) + " has not met the others yet at " + meeting_place(environment_) + ": " + tried();
    });
  }
  // Throws the error of a process that has met nobody in time.
  [[noreturn]] void fail() const {
    if (!etcd_error_.empty())
      throw CommunicationError{"process " + std::to_string(environment_.rank) + " cannot learn where the job is from " + environment_.directory->text() + ", within " +
                                   seconds_text(options_.connect_deadline) + ": " + etcd_error_,
                               -1};
    if (occupied_)
      throw CommunicationError{"process " + std::to_string(environment_.rank) + " comes for a place in the job at " + meeting_place(environment_) +
                                   ", which is at work, but the process with this RANK was still in it after " + seconds_text(options_.connect_deadline) +
                                   ": each needs a RANK of its own, and each job a MASTER_PORT or a REPLICATOR_JOB of its own",
                               environment_.rank};
    if (entry_ && !entry_->run.empty())
      throw CommunicationError{"process " + std::to_string(environment_.rank) + " cannot reach the first process of the job at " + meeting_place(environment_) + ", within " +
                                   seconds_text(options_.connect_deadline) + " (tried: " + tried() + "): can this machine connect to that one?" + hint(),
                               -1};
    throw CommunicationError{"process " + std::to_string(environment_.rank) + " cannot reach process 0 at " + meeting_place(environment_) + ", within " +
                                 seconds_text(options_.connect_deadline) + " (tried: " + tried() + "): is the process with RANK=0 running there?" + hint(),
                             0};
  }

  // For the first process of a running job. A restarted process 0 may wait at one of the addresses for the job to begin:
  // tells it that the job is running. `own_port`: the port at which this process itself listens.
  void tell_that_it_goes_on(std::uint16_t own_port) {
    constexpr std::chrono::milliseconds limit{200};
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      Link link{connect_to(addresses_[i], environment_.master_port, limit, attempts_[i].last, from_), longest_frame()};
      if (!link.open()) continue;
      const auto there = address_of_peer(link.descriptor());
      if (there.port() == own_port && there.text() == address_of(link.descriptor()).text()) continue;
      silence_ = limit;
      environment_.life = JoinRequest::running_job;
      begin(link);
      listen(link, RendezvousClock::now() + limit, attempts_[i]);
    }
  }

 private:
  struct Attempt {
    std::string last = "not tried";
    std::string complaint;  // why a process that answered was left again; later silence does not hide it
  };
  static constexpr int attempt_ms = 2000, look_up_ms = 200;

  // Asks the etcd, if there is one, where the first process is now. One that does not answer changes nothing.
  void look_up() {
    std::optional<Directory::Entry> found;
    if (!environment_.directory || !ask_directory(found) || (found && found == entry_)) return;
    entry_ = found;
    environment_.master_address = found ? found->addresses : "";
    environment_.master_port = found ? found->port : std::uint16_t{0};
    addresses_.clear();
    attempts_.clear();
    if (found) use_addresses();
  }
  // Whether the etcd says that the first process is somewhere else now. Asks at most once in a second.
  bool moved() {
    if (!environment_.directory || RendezvousClock::now() < next_look_) return false;
    next_look_ = RendezvousClock::now() + std::chrono::seconds{1};
    std::optional<Directory::Entry> found;
    return ask_directory(found) && found && found != entry_;
  }
  bool ask_directory(std::optional<Directory::Entry>& found) {
    try {
      found = environment_.directory->look();
      etcd_error_.clear();
    } catch (const Error& error) {
      etcd_error_ = error.what();
    }
    return etcd_error_.empty();
  }
  void use_addresses() {
    addresses_ = addresses_of_first(environment_);
    attempts_.assign(addresses_.size(), {});
  }

  // The limit before the peer is known to be process 0: room for a sentence, or for the names of all processes.
  std::uint64_t longest_frame() const { return 65536 + 512 * static_cast<std::uint64_t>(environment_.world_size); }

  // Without a token, the hello waits for the greeting: only then has somebody accepted the connection.
  void begin(Link& link) {
    challenge_.reset();
    occupied_ = false;
    proven_ = environment_.job_token.empty() && environment_.insecure;
    if (!believes_only_this_user(environment_)) say_hello(link);
  }

  void say_hello(Link& link) {
    request_ = {environment_.job_name,
                static_cast<std::uint64_t>(environment_.world_size),
                static_cast<std::uint64_t>(environment_.rank),
                this_process(),
                {},
                environment_.life,
                epochs_};
    if (!environment_.job_token.empty()) {
      const auto nonce = cryptography().random();
      request_.nonce.assign(nonce.begin(), nonce.end());
    }
    FrameWriter frame{FrameKind::hello};
    request_.write(frame);
    link.push(frame.finish());
    link.pump_out();
  }

  // Returns true once welcome. Process 0 waits for the others up to its own deadline, and then says who was missing.
  bool listen(Link& link, RendezvousClock::time_point until, Attempt& attempt) {
    const auto answerer = address_of_peer(link.descriptor()).with_port();
    const bool only = only_address();
    next_look_ = RendezvousClock::now() + std::chrono::seconds{1};
    auto silence_end = only && !silence_ ? until + options_.dead_after
                                         : RendezvousClock::now() + silence_.value_or(std::chrono::milliseconds{attempt_ms});
    for (;;) {
      pollfd event{link.descriptor(), POLLIN, 0};
      ::poll(&event, 1, remaining_ms(silence_end, 200));
      report();
      const bool good = link.pump_in();
      FrameKind kind{};
      Bytes fields;
      std::string complaint;
      while (link.next(kind, fields)) {
        const bool knew = proven_, challenged = challenge_.has_value();
        if (!hear(link, kind, fields, complaint)) {
          attempt.last = attempt.complaint = answerer + ": " + complaint;
          return false;
        }
        if (!membership_.links.empty()) return true;
        if (silence_ && (proven_ || challenge_.has_value() != challenged)) silence_end = RendezvousClock::now() + *silence_;
        if (!knew || silence_) continue;
        if (occupied_) {  // the job goes on, whatever comes of this process
          silence_end = until;
          attempt.last = answerer + ": the job is at work there, and the process with this RANK is still in it";
          continue;
        }
        silence_end = std::max(until, RendezvousClock::now()) + options_.dead_after;
        attempt.last = answerer + ": process 0 is there and waits for others";
      }
      const bool silent = RendezvousClock::now() >= silence_end;  // before the etcd is asked, which takes its time
      if (good && moved()) {
        attempt.last = answerer + ": another process took its place";
        return false;
      }
      if (!good) {
        attempt.last = answerer + ": the connection was closed";
        occupied_ = false;
      }
      if (good && silent)
        attempt.last = answerer + ": somebody answered, but did not speak as a process 0";
      if (!good || silent) return false;
    }
  }

  // Returns false, with the reason, where this is not the right process 0.
  bool hear(Link& link, FrameKind kind, const Bytes& fields, std::string& complaint) {
    std::optional<Refused> refused;
    try {
      FrameReader reader{fields};
      if (!proven_ && believes_only_this_user(environment_)) {
        complaint = objection_to_peer(link.descriptor(), "the process that answers");
        if (!complaint.empty() && no_other_way() && user_of_peer(link.descriptor())) throw BuildError{complaint};
        if (!complaint.empty()) return false;
        proven_ = true;
        say_hello(link);
      }
      if (kind == FrameKind::refuse)
        refused = read_refusal(reader);
      else if (kind == FrameKind::challenge && !proven_)
        return answer(link, reader, complaint);
      else if (kind == FrameKind::proof && !proven_)
        return examine(reader, complaint);
      else if (kind == FrameKind::welcome && proven_)
        accept(link, reader);
      else if (kind == FrameKind::going_on && proven_)
        find_running_job(link);
      else if (kind == FrameKind::occupied && proven_)
        occupied_ = true;
    } catch (const CommunicationError&) {
      complaint = "somebody answered, but did not speak as a process 0";
      return false;
    }
    if ((kind == FrameKind::welcome || kind == FrameKind::going_on) && !proven_) complaint = "it wants to begin without having proven the job token";
    if (refused) bear(*refused, complaint);
    return complaint.empty();
  }

  bool answer(Link& link, FrameReader& fields, std::string& complaint) {
    const auto random = fields.blob();
    Nonce challenge;
    if (challenge_ || random.size() != challenge.size()) {
      complaint = "it sent no fitting challenge";
      return false;
    }
    std::memcpy(challenge.data(), random.data(), challenge.size());
    challenge_ = challenge;
    link.push(FrameWriter{FrameKind::proof}
                  .blob(proof_of(environment_.job_token, Prover::newcomer, request_, challenge))
                  .finish());
    link.pump_out();
    return true;
  }

  bool examine(FrameReader& fields, std::string& complaint) {
    proven_ = challenge_ &&
              equal_macs(proof_of(environment_.job_token, Prover::process_0, request_, *challenge_),
                         fields.blob());
    if (!proven_) complaint = "it did not prove that it has the job token of this process";
    return proven_;
  }

  void accept(Link& link, FrameReader& fields) {
    Membership membership;
    membership.token = fields.number();
    for (int r = 0; r < environment_.world_size; ++r) {
      const auto pid = static_cast<std::int64_t>(fields.number());
      membership.processes.push_back({pid, printable(fields.text())});
    }
    membership.epochs = fields.blob();
    link.raise_limit();
    membership.links.push_back(std::move(link));
    membership_ = std::move(membership);
  }

  void find_running_job(Link& link) {
    link.raise_limit();
    membership_.going_on = true;
    membership_.links.push_back(std::move(link));
  }

  // Whether an answer that proves nothing may end this process: there is no other address to try, and no job is at work yet.
  bool no_other_way() const { return only_address() && epochs_.empty(); }
  bool only_address() const { return addresses_.size() == 1 && !environment_.directory; }

  void bear(const Refused& refused, std::string& complaint) {
    complaint = printable(refused.sentence, proven_ ? refused.sentence.size() : 1024);
    if (refused.kind == Refusal::token && (proven_ || no_other_way())) throw BuildError{complaint};
    if (refused.kind == Refusal::contradiction && proven_) throw BuildError{complaint};
    const bool known = refused.culprit >= 0 && refused.culprit < environment_.world_size;
    if (refused.kind == Refusal::failure && proven_) throw CommunicationError{complaint, known ? refused.culprit : -1};
  }

  std::string hint() const {
    if (!believes_only_this_user(environment_) || (only_this_machine_knows(environment_.master_address) && !environment_.directory)) return {};
    return std::string{" Without a job token, processes meet only on one machine. To run on several, "} + token_advice;
  }

  std::string tried() const {
    std::string result = etcd_error_;
    if (environment_.directory && nobody_there()) result = "nobody has entered an address";
    for (const auto& attempt : attempts_) {
      result += (result.empty() ? "" : "; ") + attempt.last;
      if (!attempt.complaint.empty() && attempt.complaint != attempt.last)
        result += ", before that " + attempt.complaint;
    }
    return result;
  }

  ProcessEnvironment environment_;
  JobOptions options_;
  Bytes epochs_;
  std::vector<std::string> addresses_;
  std::vector<Attempt> attempts_;          // one per address
  std::optional<Directory::Entry> entry_;  // where the first process was at the latest look
  std::string etcd_error_;                 // why the etcd gave no answer at the latest look; empty: it gave one
  RendezvousClock::time_point next_look_{};
  std::vector<InterfaceAddress> from_;
  WaitReport report_;
  JoinRequest request_;
  std::optional<Nonce> challenge_;
  bool proven_ = false;                               // process 0 has proven that it belongs to the job, or everybody is believed
  bool occupied_ = false;                             // the running job has a process of this rank
  std::optional<std::chrono::milliseconds> silence_;  // of try_connect: limit of every silence of the other end
  Membership membership_;
};

}  // namespace replicator::detail::transport::detail
