// SPDX-License-Identifier: Apache-2.0
// The server side of admission: a running elastic job listens for restarted processes.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/job/elastic/admission.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/pending_connections.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/survivors.hpp>
#include <replicator/job/trust.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/link.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::transport {

namespace detail {

// A process that asks for its place, and has proven that it belongs to the job.
struct AdmissionRequest {
  Link link;
  JoinRequest who;
  RendezvousClock::time_point since;  // its last message
  bool told = false;                  // it knows that the job is running and its place is free
  bool waits = false;                 // it knows that the job is running and its place is not free yet
  bool ready = false;                 // it has reached its first step
  RegroupAddress regroup_address = {};
  Bytes wish = {};  // describes the step that it waits for
  RendezvousClock::time_point next_beat = {};

  std::string name() const { return describe_process(static_cast<int>(who.rank), who.info); }
  // Sends heartbeats, so that the newcomer sees that the job is alive.
  void beat(RendezvousClock::time_point now, const JobOptions& options) {
    if (now < next_beat) return;
    next_beat = now + options.heartbeat;
    link.push(FrameWriter{FrameKind::heartbeat}.finish());
    link.pump_out();
  }
};

// Runs on the job's first process, whichever that is. It listens at MASTER_PORT, as process 0 did at first, or at any port that a
// directory then tells; the elastic job's thread serves it.
//
//   newcomer   hello .. proof      the handshake of a new job
//   listener   occupied            the job is running, but the place is not free: perhaps its loss is not known yet
//   listener   going_on            the job is running, and the place is free
//   newcomer   apply               asks at once whether it may come. Then it does what its program does before its first
//                                  step, and applies again: ready
//   listener   going_on            it may come
class AdmissionServer {
 public:
  AdmissionServer(const ProcessEnvironment& environment, const JobOptions& options, const Admission& admission)
      : environment_{environment}, options_{options}, admission_{admission}, listener_{std::move(environment_.listener)} {}
  AdmissionServer(const AdmissionServer&) = delete;
  AdmissionServer& operator=(const AdmissionServer&) = delete;

  // Listens if the port is free; otherwise tries again later.
  void open() {
    if (listener_ || (environment_.master_port == 0 && !environment_.directory) || RendezvousClock::now() < next_try_) return;
    next_try_ = RendezvousClock::now() + std::chrono::milliseconds{200};
    try {
      listener_ = std::make_shared<FileDescriptor>(
          listen_on(environment_.master_port, listening_address(environment_), environment_.rank));
    } catch (const Error&) {  // a stopped process, or a process 0 that was started again, has the port; or the interface is gone
    }
  }
  void close() {
    listener_.reset();
    newcomers_.clear();
    requests_.clear();
  }
  // 0 where it is not open.
  std::uint16_t port() const { return listener_ ? port_of(listener_->get()) : std::uint16_t{0}; }

  void watch(std::vector<pollfd>& events) const {
    if (!listener_) return;
    events.push_back({listener_->get(), POLLIN, 0});
    newcomers_.watch(events);
    for (const auto& request : requests_) events.push_back({request.link.descriptor(), POLLIN, 0});
  }
  void serve(const Survivors& survivors) {
    if (!listener_) return;
    newcomers_.admit(listener_->get());
    newcomers_.hear();
    for (auto& request : requests_) serve(request, survivors);
    std::erase_if(requests_, [](const AdmissionRequest& request) { return !request.link.open(); });
  }

  bool somebody_is_ready() const {
    return std::any_of(requests_.begin(), requests_.end(), [](const AdmissionRequest& request) { return request.ready; });
  }
  // Removes and returns the first request that is ready and whose wish fits.
  std::optional<AdmissionRequest> take(const std::function<bool(const Bytes& wish)>& fits, const Survivors& survivors) {
    const auto found = std::find_if(requests_.begin(), requests_.end(),
                                    [&](const AdmissionRequest& request) { return request.ready && survivors.gone(request.who.rank) && fits(request.wish); });
    if (found == requests_.end()) return {};
    std::optional<AdmissionRequest> result{std::move(*found)};
    requests_.erase(found);
    return result;
  }

 private:
  // How long to wait until a process that still holds the number may be known to be dead.
  static constexpr std::chrono::milliseconds admission_limit{12000};

  void receive(PendingConnection& newcomer) {
    const auto rank = newcomer.request.rank;
    const auto world = static_cast<std::uint64_t>(environment_.world_size);
    if (rank >= world || newcomer.request.world_size != world)
      return refuse(newcomer.link, name_of(newcomer) + " was started with WORLD_SIZE=" + std::to_string(newcomer.request.world_size) +
                                       ", the job that is at work with WORLD_SIZE=" + std::to_string(world) + ": all of its processes need the same");
    std::erase_if(requests_, [&](const AdmissionRequest& request) { return request.who.rank == rank && !request.ready; });  // it may connect again
    requests_.push_back({std::move(newcomer.link), std::move(newcomer.request), RendezvousClock::now()});
  }

  void serve(AdmissionRequest& request, const Survivors& survivors) {
    const auto now = RendezvousClock::now();
    const bool good = request.link.pump_in();
    FrameKind kind{};
    Bytes fields;
    try {
      while (request.link.open() && request.link.next(kind, fields))
        if (kind != FrameKind::apply || !request.told) request.link.close();
        else hear(request, FrameReader{fields}, survivors);
    } catch (const CommunicationError&) {  // cut short
      request.link.close();
    }
    if (!good) request.link.close();
    if (!request.link.open()) return;
    const bool free = survivors.gone(request.who.rank);
    if (free && !request.told) {
      request.told = true;
      request.since = now;
      request.link.push(FrameWriter{FrameKind::going_on}.finish());
    }
    if (!free && (request.told || now - request.since > admission_limit || request.who.rank == static_cast<std::uint64_t>(environment_.rank)))
      return refuse(request.link, request.name() + " comes for the place of process " + std::to_string(request.who.rank) +
                                      " of a job that is at work, but that process lives: each needs a RANK of its own");
    if (!free && !std::exchange(request.waits, true)) request.link.push(FrameWriter{FrameKind::occupied}.finish());
    if (!request.ready && request.told && now - request.since > options_.dead_after) return request.link.close();
    request.beat(now, options_);
    request.link.pump_out();
  }

  void hear(AdmissionRequest& request, FrameReader fields, const Survivors& survivors) {
    request.since = RendezvousClock::now();
    const auto identity = fields.blob();
    const bool ready = fields.number() != 0;
    request.regroup_address = {address_of_peer(request.link.descriptor()).text(), static_cast<std::uint16_t>(fields.number())};
    request.wish = fields.blob();
    if (auto objection = admission_.objection(identity, request.name()); !objection.empty()) return refuse(request.link, objection);
    const auto loopback = [](const RegroupAddress& regroup_address) { return loopback_address(regroup_address.address).has_value(); };
    if (loopback(request.regroup_address) != loopback(survivors.regroup_address(environment_.rank)))
      return refuse(request.link, request.name() + " comes from " + request.regroup_address.address +
                                      ", where not all processes of the job can find it: " + address_advice(environment_));
    if (ready) make_room(request);
    request.ready = ready;
    request.link.push(FrameWriter{FrameKind::going_on}.finish());
  }
  // The latest request counts: an earlier process may be gone without a word. If it lives, it must not come again.
  void make_room(const AdmissionRequest& latest) {
    for (auto& request : requests_) {
      if (&request == &latest || !request.ready || request.who.rank != latest.who.rank) continue;
      const auto &there = request.who.info, &here = latest.who.info;
      if (there.pid == here.pid && there.host == here.host) request.link.close();
      else refuse(request.link, request.name() + " waits for its place in the job, but " + latest.name() +
                                    " came for the same place: each needs a RANK of its own");
    }
  }

  static void refuse(Link& link, const std::string& sentence) {
    WaitReport::say("turned away: " + sentence);
    dismiss(link, Refusal::contradiction, 0, sentence);
  }

  ProcessEnvironment environment_;
  JobOptions options_;
  const Admission& admission_;
  std::shared_ptr<FileDescriptor> listener_;
  RendezvousClock::time_point next_try_{};
  PendingConnections newcomers_{environment_, options_, {[this](PendingConnection& newcomer) { receive(newcomer); }}};
  std::vector<AdmissionRequest> requests_;
};

// Sends the state to the newcomer. Returns false:
// - where the newcomer is gone, or takes nothing for options.dead_after,
// - where it does not take all within half of options.exchange_deadline: the other processes wait for this one meanwhile,
// - once stop() is true.
inline bool hand_over(AdmissionRequest& request, const Bytes& state, const JobOptions& options, const std::function<bool()>& stop) {
  constexpr std::size_t largest_piece = std::size_t{1} << 18;
  const auto began = RendezvousClock::now();
  const auto longest = options.exchange_deadline.count() > 0 ? options.exchange_deadline / 2 : std::chrono::hours{24 * 365};
  std::size_t at = 0, unsent = 0;
  bool all = false;
  auto until = began + options.dead_after;
  for (;;) {
    if (!request.link.has_output() && !all) {
      const auto piece = std::span{state}.subspan(at, std::min(largest_piece, state.size() - at));
      request.link.push(FrameWriter{FrameKind::state}.number(state.size()).blob(piece).finish());
      at += piece.size();
      all = at == state.size();
      until = RendezvousClock::now() + options.dead_after;
    }
    pollfd event{request.link.descriptor(), static_cast<short>(request.link.has_output() ? POLLIN | POLLOUT : POLLIN), 0};
    ::poll(&event, 1, 100);
    const bool good = request.link.pump_out() && request.link.pump_in();
    FrameKind kind{};
    Bytes fields;
    if (request.link.next(kind, fields)) return kind == FrameKind::taken && all;
    const auto now = RendezvousClock::now();
    if (std::exchange(unsent, request.link.unsent()) != request.link.unsent()) until = now + options.dead_after;
    if (!good || now > until || now - began > longest || stop()) return false;
  }
}

}  // namespace detail

}  // namespace replicator::detail::transport
