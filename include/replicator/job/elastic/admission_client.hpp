// SPDX-License-Identifier: Apache-2.0
// The client side of admission: a restarted process asks a running job to be taken in again.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/job/elastic/regroup.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/rendezvous_client.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/link.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// The peer of AdmissionServer. All functions throw BuildError, with the job's sentence, where the job refuses this process.
// They throw CommunicationError where nobody answers within options.connect_deadline. They also throw it where the job
// reaches no step for this process within options.exchange_deadline.
class AdmissionClient {
 public:
  // `found`: a membership with going_on set.
  AdmissionClient(const ProcessEnvironment& environment, const JobOptions& options, Bytes identity, Membership found)
      : environment_{environment}, options_{options}, identity_{std::move(identity)}, report_{options.report_after} {
    environment_.listener.reset();
    if (!found.links.empty()) link_ = std::move(found.links[0]);
  }

  // Asks whether the job may admit this process at all.
  void ask() {
    while (!answered(false, {})) look_at_clock();
    link_.close();
  }
  // Waits until the job reaches a step at which this process can go on, and receives its state. Afterwards all processes
  // are about to meet. `arbiter`: see Regroup.
  Regroup enter(const Bytes& wish, Bytes& state, const std::string& arbiter = {}) {
    began_ = RendezvousClock::now();
    report_ = WaitReport{options_.report_after};
    for (;; look_at_clock()) {
      state.clear();
      environment_.listener = Regroup::open_regroup_listener(environment_);
      if (answered(true, wish))
        if (auto survivors = taken_in(state)) return {environment_, options_, FrameReader{*survivors}, arbiter};
      given_ = false;
      environment_.listener.reset();  // a peer that waits for this process there then fails quickly
      link_.close();
    }
  }

 private:
  // Returns false where the first process of the job was lost, or handed its role to another one.
  bool answered(bool ready, const Bytes& wish) {
    if (!link_.open()) {
      auto membership = RendezvousClient{environment_, options_}.arrive();
      if (!membership.going_on)
        throw CommunicationError{
            "the job that process " + std::to_string(environment_.rank) + " came back to is gone, and another one begins there", 0};
      link_ = std::move(membership.links[0]);
    }
    const auto port = ready ? port_of(environment_.listener->get()) : std::uint16_t{0};
    link_.push(FrameWriter{FrameKind::apply}.blob(identity_).number(ready ? 1 : 0).number(port).blob(wish).finish());
    heard_ = RendezvousClock::now();
    Bytes fields;
    const bool good = await(FrameKind::going_on, fields);
    if (good) return true;
    link_.close();
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    return false;
  }
  // Receives the state, and returns the list of survivors.
  std::optional<Bytes> taken_in(Bytes& state) {
    Bytes fields;
    for (std::uint64_t whole = 1; state.size() < whole;) {
      if (!await(FrameKind::state, fields)) return {};
      given_ = true;
      FrameReader reader{fields};
      whole = reader.number();
      const auto piece = reader.blob();
      if (state.size() + piece.size() > whole) return {};
      state.insert(state.end(), piece.begin(), piece.end());
    }
    link_.push(FrameWriter{FrameKind::taken}.finish());
    if (!await(FrameKind::enter, fields)) return {};
    link_.close();
    return fields;
  }

  // Returns false where the other side is gone, silent, or sends something else.
  bool await(FrameKind wanted, Bytes& fields) {
    for (bool good = true;;) {
      for (FrameKind kind{}; link_.next(kind, fields);) {
        if (kind == wanted) return true;
        if (kind == FrameKind::refuse) throw BuildError{printable(read_refusal(FrameReader{fields}).sentence, 4096)};
        if (kind != FrameKind::heartbeat && kind != FrameKind::going_on) return false;
      }
      if (!good || RendezvousClock::now() - heard_ > 2 * options_.dead_after) return false;
      look_at_clock();
      pollfd event{link_.descriptor(), static_cast<short>(link_.has_output() ? POLLIN | POLLOUT : POLLIN), 0};
      ::poll(&event, 1, 100);
      const auto before = link_.received();
      const bool sent = link_.pump_out();
      good = link_.pump_in() && sent;
      if (link_.received() != before) heard_ = RendezvousClock::now();
    }
  }
  void look_at_clock() {
    const auto self = "process " + std::to_string(environment_.rank);
    report_.look([&] { return self + " still waits to be taken in by the job at " + where(); });
    if (!given_ && options_.exchange_deadline.count() > 0 && RendezvousClock::now() - began_ > options_.exchange_deadline)
      throw CommunicationError{self + " came back to the job at " + where() + ", which is at work, but the job reached no step that this process waits for within " +
                                   seconds_text(options_.exchange_deadline),
                               0};
  }
  std::string where() const { return meeting_place(environment_); }

  ProcessEnvironment environment_;
  JobOptions options_;
  Bytes identity_;
  Link link_;
  WaitReport report_;
  RendezvousClock::time_point began_ = RendezvousClock::now(), heard_{};
  bool given_ = false;  // the job has reached the step: from now on its first process watches the clock
};

}  // namespace replicator::detail::transport::detail
