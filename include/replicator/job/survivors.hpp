// SPDX-License-Identifier: Apache-2.0
// The survivors of a job that has lost processes, and the rule that keeps two parts of a job from both continuing.
#pragma once

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <replicator/core/error.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// The address at which a process listens for a regroup after a loss.
struct RegroupAddress {
  std::string address;
  std::uint16_t port = 0;
};

inline std::string left_out_sentence(int rank, const ProcessInfo& info) {
  return describe_process(rank, info) + " was stopped or cut off for too long: the others go on without it";
}

// Processes keep their numbers of the first rendezvous. **Two parts of a job must never both continue.** So the process
// that gathers one part first tells all missing processes that they are left out. Only then does it look whether it has
// been told the same. Of two parts, at least one is told.
//
// Where the missing processes cannot be told, the larger part continues. Of two equal parts, the one with the lowest number
// does.
class Survivors {
 public:
  // `secret`: known only to the processes of this job.
  Survivors(int self, std::uint64_t secret, std::vector<RegroupAddress> regroup_addresses)
      : self_{self}, secret_{secret}, regroup_addresses_{std::move(regroup_addresses)}, gone_(regroup_addresses_.size()), parted_(regroup_addresses_.size()), lives_(regroup_addresses_.size()) {}

  // Writes the table for a process that comes back. The table must list it already (see admit).
  FrameWriter& write(FrameWriter& frame) const {
    frame.number(secret_).number(regroup_addresses_.size());
    for (std::size_t r = 0; r < regroup_addresses_.size(); ++r)
      frame.text(regroup_addresses_[r].address).number(regroup_addresses_[r].port).number(lives_[r]).number(gone_[r] ? 1 : 0);
    return frame;
  }
  // Throws CommunicationError where the fields are cut short, or the number of processes differs.
  static Survivors read(int self, std::size_t processes, FrameReader& fields) {
    Survivors result{self, fields.number(), std::vector<RegroupAddress>(processes)};
    if (fields.number() != processes) throw CommunicationError{"a message about the survivors of a job has another number of processes", 0};
    for (std::size_t r = 0; r < processes; ++r) {
      result.regroup_addresses_[r].address = fields.text();
      result.regroup_addresses_[r].port = static_cast<std::uint16_t>(fields.number());
      result.lives_[r] = fields.number();
      result.gone_[r] = result.parted_[r] = fields.number() != 0;
    }
    result.met_ = false;
    return result;
  }
  // Expects a process that was restarted.
  void admit(int process, RegroupAddress regroup_address, std::uint64_t life) {
    const auto r = static_cast<std::size_t>(process);
    regroup_addresses_.at(r) = std::move(regroup_address);
    lives_[r] = life;
    gone_[r] = parted_[r] = false;
  }
  // The incarnation of the process that the job knows: how often its number was admitted to the running job.
  std::uint64_t life(std::size_t process) const { return lives_[process]; }

  const RegroupAddress& regroup_address(int process) const { return regroup_addresses_[static_cast<std::size_t>(process)]; }
  bool gone(std::size_t process) const { return gone_[process]; }
  void lose(int process) { gone_.at(static_cast<std::size_t>(process)) = true; }

  // Marks absent processes as gone: those at an address where nobody listens; with `late`, all of them.
  void strike(const std::vector<bool>& here, bool late) {
    const auto now = RendezvousClock::now();
    const bool look = now >= next_look_;
    if (look) next_look_ = now + std::chrono::milliseconds{200};
    for (std::size_t r = 0; r < here.size(); ++r) {
      if (here[r] || gone_[r]) continue;
      if (late || (look && probe(r) == ECONNREFUSED)) gone_[r] = true;
    }
  }

  // Tells the absent processes that they are left out. Throws CommunicationError where this part of the job must not
  // continue.
  void part_from_missing(const std::vector<bool>& here) {
    if (!met_ && std::count(here.begin(), here.end(), true) == 1)
      throw CommunicationError{"none of the processes of the job came to meet process " + std::to_string(self_) + ", which they had taken in", self_};
    std::vector<std::size_t> reached, cut_off;
    for (std::size_t r = 0; r < here.size(); ++r) {
      if (here[r]) reached.push_back(r);
      else if (!parted_[r] && !tell(r)) cut_off.push_back(r);
    }
    if (cut_off.size() < reached.size() || (cut_off.size() == reached.size() && reached[0] < cut_off[0])) return;
    throw CommunicationError{std::to_string(cut_off.size()) + " processes of this job, process " + std::to_string(cut_off[0]) +
                                 " among them, cannot be reached from this part of it, which has " + std::to_string(reached.size()) +
                                 ": they may go on without it, so it ends",
                             self_};
  }
  // The job continues with those who are here. Later messages from the others do not count. Throws CommunicationError where
  // another part of the job has said that this process is left out.
  void settle(const std::vector<bool>& here) {
    if (told_) throw CommunicationError{left_out_sentence(self_, this_process()), self_};
    for (std::size_t r = 0; r < here.size(); ++r) gone_[r] = parted_[r] = !here[r];
    met_ = true;
  }
  // Another process says that this one is left out. That counts if the sender belongs to another part of the job, or was
  // admitted there since. It does not count from an earlier life of a process of this part.
  void hear(FrameReader fields) {
    const auto secret = fields.number(), from = fields.number(), life = fields.number();
    if (secret != secret_ || from >= parted_.size() || life < lives_[from]) return;
    told_ |= life > lives_[from] || !parted_[from];
  }
  bool told() const { return told_; }

 private:
  int probe(std::size_t process) const {
    FileDescriptor socket;
    return reach(process, socket);
  }
  // Returns 0 or an errno.
  int reach(std::size_t process, FileDescriptor& socket) const {
    auto address = numeric_address(regroup_addresses_[process].address);
    if (!address) return EADDRNOTAVAIL;
    address->set_port(regroup_addresses_[process].port);
    socket = FileDescriptor{::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    return socket ? finish_connecting(socket.get(), *address, std::chrono::milliseconds{500}) : errno;
  }
  // Returns false where the process may live, but its host does not confirm that the message has arrived.
  bool tell(std::size_t process) const {
    FileDescriptor socket;
    const int number = reach(process, socket);
    if (number != 0) return number == ECONNREFUSED;
    const auto own = static_cast<std::size_t>(self_);
    const auto frame =
        FrameWriter{FrameKind::left_out}.number(secret_).number(own).number(lives_[own]).finish();
    if (::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size())) return false;
    for (int tenths = 0; tenths < 10; ++tenths) {
      int unconfirmed = 0;
      if (::ioctl(socket.get(), SIOCOUTQ, &unconfirmed) == 0 && unconfirmed == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
    return false;
  }

  int self_;
  std::uint64_t secret_;
  std::vector<RegroupAddress> regroup_addresses_;
  std::vector<bool> gone_;    // as far as this process knows
  std::vector<bool> parted_;  // the job has continued without them
  std::vector<std::uint64_t> lives_;
  bool met_ = true;  // false: this process is about to meet the others for the first time
  bool told_ = false;
  RendezvousClock::time_point next_look_{};
};

}  // namespace replicator::detail::transport::detail
