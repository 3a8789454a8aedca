// SPDX-License-Identifier: Apache-2.0
// Where an elastic job that is at work hears of processes that were started again.
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
#include <replicator/job/job_options.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/pending_connections.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/survivors.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/link.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::transport {

// Who may come (back) to an elastic job.
struct Admission {
  detail::Bytes identity = {};  // what must be equal, of this process
  // Why a process of that identity, which is called `who`, must stay outside; empty where it need not.
  std::function<std::string(const detail::Bytes& theirs, const std::string& who)> objection = [](const auto&, const auto&) { return std::string{}; };
};

namespace detail {

// A process that asks for its place, and has proven that it is of the job.
struct AdmissionRequest {
  Link link;
  JoinRequest who;
  MeetingClock::time_point since;  // its last word
  bool told = false;               // that the job is at work and its place is free
  bool ready = false;              // it has come to its first step
  RegroupAddress refuge = {};
  Bytes wish = {};  // what it waits for
  MeetingClock::time_point next_beat = {};

  std::string name() const { return describe_process(static_cast<int>(who.rank), who.info); }
  // It must see that somebody is here.
  void beat(MeetingClock::time_point now, const JobOptions& options) {
    if (now < next_beat) return;
    next_beat = now + options.heartbeat;
    link.push(FrameWriter{FrameKind::heartbeat}.finish());
    link.pump_out();
  }
};

// Of the first process of the job, whichever it is: it listens at MASTER_PORT, as process 0 did. Its thread serves.
//
//   newcomer   hello .. proof      as when the job began
//   door       going_on            the place is free
//   newcomer   apply               as soon as it knows that it is one: may it? Then it does what its program does before its first
//                                  step, and comes again: ready
//   door       going_on            it may
class AdmissionServer {
 public:
  AdmissionServer(const ProcessEnvironment& environment, const JobOptions& options, const Admission& admission)
      : environment_{environment}, options_{options}, admission_{admission}, listener_{std::move(environment_.listener)} {}
  AdmissionServer(const AdmissionServer&) = delete;
  AdmissionServer& operator=(const AdmissionServer&) = delete;

  // As far as the port is free.
  void open() {
    if (listener_ || environment_.master_port == 0 || MeetingClock::now() < next_try_) return;
    next_try_ = MeetingClock::now() + std::chrono::milliseconds{200};
    try {
      listener_ = std::make_shared<FileDescriptor>(
          listen_on(environment_.master_port, listening_address(environment_.interface, environment_.master_address)));
    } catch (const Error&) {  // a process that is stopped has it, or a process 0 that was started again; or the interface is gone
    }
  }
  void close() {
    listener_.reset();
    newcomers_.clear();
    guests_.clear();
  }
  // 0 where it is not open.
  std::uint16_t port() const { return listener_ ? port_of(listener_->get()) : std::uint16_t{0}; }

  void watch(std::vector<pollfd>& events) const {
    if (!listener_) return;
    events.push_back({listener_->get(), POLLIN, 0});
    newcomers_.watch(events);
    for (const auto& guest : guests_) events.push_back({guest.link.descriptor(), POLLIN, 0});
  }
  void serve(const Survivors& roll) {
    if (!listener_) return;
    newcomers_.admit(listener_->get());
    newcomers_.hear();
    for (auto& guest : guests_) serve(guest, roll);
    std::erase_if(guests_, [](const AdmissionRequest& guest) { return !guest.link.open(); });
  }

  bool somebody_is_ready() const {
    return std::any_of(guests_.begin(), guests_.end(), [](const AdmissionRequest& guest) { return guest.ready; });
  }
  // The first that is ready, and waits for this.
  std::optional<AdmissionRequest> take(const std::function<bool(const Bytes& wish)>& fits, const Survivors& roll) {
    const auto found = std::find_if(guests_.begin(), guests_.end(),
                                    [&](const AdmissionRequest& guest) { return guest.ready && roll.gone(guest.who.rank) && fits(guest.wish); });
    if (found == guests_.end()) return {};
    std::optional<AdmissionRequest> result{std::move(*found)};
    guests_.erase(found);
    return result;
  }

 private:
  // A process whose number is not free may be known to be dead soon.
  static constexpr std::chrono::milliseconds patience{12000};

  void receive(PendingConnection& newcomer) {
    const auto rank = newcomer.introduction.rank;
    const auto world = static_cast<std::uint64_t>(environment_.world_size);
    if (rank >= world || newcomer.introduction.world_size != world)
      return refuse(newcomer.link, name_of(newcomer) + " was started with WORLD_SIZE=" + std::to_string(newcomer.introduction.world_size) +
                                       ", the job that is at work with WORLD_SIZE=" + std::to_string(world) + ": all of its processes need the same");
    std::erase_if(guests_, [&](const AdmissionRequest& guest) { return guest.who.rank == rank && !guest.ready; });  // it comes again, if it is there
    guests_.push_back({std::move(newcomer.link), std::move(newcomer.introduction), MeetingClock::now()});
  }

  void serve(AdmissionRequest& guest, const Survivors& roll) {
    const auto now = MeetingClock::now();
    const bool good = guest.link.pump_in();
    FrameKind kind{};
    Bytes fields;
    try {
      while (guest.link.open() && guest.link.next(kind, fields))
        if (kind != FrameKind::apply || !guest.told) guest.link.close();
        else hear(guest, FrameReader{fields}, roll);
    } catch (const CommunicationError&) {  // cut short
      guest.link.close();
    }
    if (!good) guest.link.close();
    if (!guest.link.open()) return;
    const bool free = roll.gone(guest.who.rank);
    if (free && !guest.told) {
      guest.told = true;
      guest.since = now;
      guest.link.push(FrameWriter{FrameKind::going_on}.finish());
    }
    if (!free && (guest.told || now - guest.since > patience || guest.who.rank == static_cast<std::uint64_t>(environment_.rank)))
      return refuse(guest.link, guest.name() + " comes for the place of process " + std::to_string(guest.who.rank) +
                                    " of a job that is at work, but that process lives: each needs a RANK of its own");
    if (!guest.ready && guest.told && now - guest.since > options_.dead_after) return guest.link.close();
    guest.beat(now, options_);
    guest.link.pump_out();
  }

  void hear(AdmissionRequest& guest, FrameReader fields, const Survivors& roll) {
    guest.since = MeetingClock::now();
    const auto identity = fields.blob();
    const bool ready = fields.number() != 0;
    guest.refuge = {address_of_peer(guest.link.descriptor()).text(), static_cast<std::uint16_t>(fields.number())};
    guest.wish = fields.blob();
    if (auto objection = admission_.objection(identity, guest.name()); !objection.empty()) return refuse(guest.link, objection);
    const auto loopback = [](const RegroupAddress& refuge) { return loopback_address(refuge.address).has_value(); };
    if (loopback(guest.refuge) != loopback(roll.refuge(environment_.rank)))
      return refuse(guest.link, guest.name() + " comes from " + guest.refuge.address +
                                    ", where not all processes of the job can find it: name a MASTER_ADDR that all machines know, or choose an "
                                    "interface with --interface");
    if (ready) make_room(guest);
    guest.ready = ready;
    guest.link.push(FrameWriter{FrameKind::going_on}.finish());
  }
  // The latest counts: an earlier one may be gone without a word. If it is not, it must not come again.
  void make_room(const AdmissionRequest& latest) {
    for (auto& guest : guests_) {
      if (&guest == &latest || !guest.ready || guest.who.rank != latest.who.rank) continue;
      const auto &there = guest.who.info, &here = latest.who.info;
      if (there.pid == here.pid && there.host == here.host) guest.link.close();
      else refuse(guest.link, guest.name() + " waits for its place in the job, but " + latest.name() +
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
  MeetingClock::time_point next_try_{};
  PendingConnections newcomers_{environment_, options_, {[this](PendingConnection& newcomer) { receive(newcomer); }}};
  std::vector<AdmissionRequest> guests_;
};

// Gives it the state. False where it is gone, where it takes nothing for options.dead_after, or not all within half of options.exchange_deadline,
// in which the other processes wait for this one, or once stop() is true.
inline bool hand_over(AdmissionRequest& guest, const Bytes& state, const JobOptions& options, const std::function<bool()>& stop) {
  constexpr std::size_t largest_piece = std::size_t{1} << 18;
  const auto began = MeetingClock::now();
  const auto longest = options.exchange_deadline.count() > 0 ? options.exchange_deadline / 2 : std::chrono::hours{24 * 365};
  std::size_t at = 0, unsent = 0;
  bool all = false;
  auto until = began + options.dead_after;
  for (;;) {
    if (!guest.link.has_output() && !all) {
      const auto piece = std::span{state}.subspan(at, std::min(largest_piece, state.size() - at));
      guest.link.push(FrameWriter{FrameKind::state}.number(state.size()).blob(piece).finish());
      at += piece.size();
      all = at == state.size();
      until = MeetingClock::now() + options.dead_after;
    }
    pollfd event{guest.link.descriptor(), static_cast<short>(guest.link.has_output() ? POLLIN | POLLOUT : POLLIN), 0};
    ::poll(&event, 1, 100);
    const bool good = guest.link.pump_out() && guest.link.pump_in();
    FrameKind kind{};
    Bytes fields;
    if (guest.link.next(kind, fields)) return kind == FrameKind::taken && all;
    const auto now = MeetingClock::now();
    if (std::exchange(unsent, guest.link.unsent()) != guest.link.unsent()) until = now + options.dead_after;
    if (!good || now > until || now - began > longest || stop()) return false;
  }
}

}  // namespace detail

}  // namespace replicator::detail::transport
