// SPDX-License-Identifier: Apache-2.0
// The numbered memberships (epochs) of an elastic job, and the rule by which at most one part of it goes on after a loss.
// Pure data: no sockets, no clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <replicator/core/error.hpp>
#include <replicator/job/wire/frame.hpp>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// One membership. Processes keep their numbers of the first rendezvous; a restarted process has another life.
struct Epoch {
  static constexpr std::uint64_t absent = ~std::uint64_t{0};

  std::uint64_t number = 0;
  std::vector<std::uint64_t> lives;  // of each process; absent where it is no member

  bool has(std::size_t process) const { return lives[process] != absent; }
  std::size_t size() const { return lives.size() - static_cast<std::size_t>(std::count(lives.begin(), lives.end(), absent)); }
  // How many of its members are in `part`, in the same life.
  std::size_t of(const Epoch& part) const {
    std::size_t result = 0;
    for (std::size_t r = 0; r < lives.size(); ++r) result += has(r) && part.lives[r] == lives[r];
    return result;
  }
  bool operator==(const Epoch&) const = default;
};

// What a part of a job knows of a process outside.
enum class Outside {
  unknown,   // it may go on
  gone,      // it is dead
  gone_here  // it is on this machine, and is dead or has been told to end; no link between them can be cut
};

// What one process knows of the epochs of its job. A part may form the next epoch where one of these holds:
//
// - it has more than half of the members
// - it has half of them, and the others are gone. They were no majority, so they did not go on before they died
// - the others are gone from this machine. They did not go on either: they would have told this part first
//
// Where a majority is gone elsewhere, it may have gone on and have finished while this part was cut off.
//
//   confirmed   the last epoch that all its members are known to have entered
//   proposed    later epochs that this process has entered, while others perhaps have not
//
// A proposed epoch may be confirmed elsewhere. So a part goes on only where the rule holds in the confirmed epoch and in
// every proposed one (joint consensus, as Raft changes its members). Any two majorities of an epoch share a process, and
// that process tells the second one of the first.
class Epochs {
 public:
  Epochs() = default;
  // Epoch 0, of all processes.
  explicit Epochs(std::size_t processes) : confirmed_{0, std::vector<std::uint64_t>(processes)} {}

  const Epoch& confirmed() const { return confirmed_; }
  // The number of the latest known epoch.
  std::uint64_t latest() const { return proposed_.empty() ? confirmed_.number : proposed_.back().number; }

  // Whether the process is a member of the confirmed epoch, or of a proposed one.
  bool has(std::size_t process) const {
    return confirmed_.has(process) || std::any_of(proposed_.begin(), proposed_.end(), [&](const Epoch& epoch) { return epoch.has(process); });
  }

  // Learns what another process knows.
  void learn(const Epochs& other) {
    if (other.confirmed_.number > confirmed_.number) confirmed_ = other.confirmed_;
    for (const auto& epoch : other.proposed_)
      if (std::find(proposed_.begin(), proposed_.end(), epoch) == proposed_.end()) proposed_.push_back(epoch);
    std::erase_if(proposed_, [&](const Epoch& epoch) { return epoch.number <= confirmed_.number; });
    std::sort(proposed_.begin(), proposed_.end(), [](const Epoch& a, const Epoch& b) { return a.number < b.number; });
  }

  // Whether `part` may form the next epoch. `outside` is asked about processes outside the part.
  bool may_go_on(const Epoch& part, const std::function<Outside(std::size_t process)>& outside) const {
    return may_go_on_from(confirmed_, part, outside) &&
           std::all_of(proposed_.begin(), proposed_.end(), [&](const Epoch& epoch) { return may_go_on_from(epoch, part, outside); });
  }
  // Whether a majority outside of `part` may live.
  bool majority_may_live_outside(const Epoch& part, const std::function<Outside(std::size_t process)>& outside) const {
    std::size_t count = 0;
    for (std::size_t r = 0; r < confirmed_.lives.size(); ++r)
      count += confirmed_.has(r) && part.lives[r] != confirmed_.lives[r] && outside(r) == Outside::unknown;
    return 2 * count > confirmed_.size();
  }
  // The processes of `part` enter the next epoch, and this process is told first.
  void propose(Epoch part) {
    part.number = latest() + 1;
    proposed_.push_back(std::move(part));
  }
  // All members of the latest epoch have entered it.
  void confirm() {
    if (!proposed_.empty()) confirm(Epoch{proposed_.back()});
  }
  void confirm(Epoch epoch) {
    confirmed_ = std::move(epoch);
    learn({});
  }

  FrameWriter& write(FrameWriter& frame) const {
    frame.number(proposed_.size());
    write(frame, confirmed_);
    for (const auto& epoch : proposed_) write(frame, epoch);
    return frame;
  }
  // Throws CommunicationError where the fields are cut short.
  static Epochs read(std::size_t processes, FrameReader& fields) {
    Epochs result;
    auto proposed = fields.number();
    result.confirmed_ = read_one(processes, fields);
    for (; proposed > 0; --proposed) result.proposed_.push_back(read_one(processes, fields));
    return result;
  }

 private:
  static bool may_go_on_from(const Epoch& epoch, const Epoch& part, const std::function<Outside(std::size_t)>& outside) {
    const auto members = epoch.of(part);
    if (2 * members > epoch.size()) return true;
    bool here = true;
    for (std::size_t r = 0; r < epoch.lives.size(); ++r) {
      if (!epoch.has(r) || part.lives[r] == epoch.lives[r]) continue;
      const auto state = part.has(r) ? Outside::unknown : outside(r);
      if (state == Outside::unknown) return false;
      here &= state == Outside::gone_here;
    }
    return here || 2 * members == epoch.size();
  }
  static void write(FrameWriter& frame, const Epoch& epoch) {
    frame.number(epoch.number);
    for (const auto life : epoch.lives) frame.number(life);
  }
  static Epoch read_one(std::size_t processes, FrameReader& fields) {
    Epoch result{fields.number(), {}};
    for (std::size_t r = 0; r < processes; ++r) result.lives.push_back(fields.number());
    return result;
  }

  Epoch confirmed_;
  std::vector<Epoch> proposed_;  // by number
};

}  // namespace replicator::detail::transport::detail
