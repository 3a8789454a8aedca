// SPDX-License-Identifier: Apache-2.0
// The survivors of a job that has lost processes: who is here, who is dead, and whether this part of the job goes on.
#pragma once

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <replicator/core/error.hpp>
#include <replicator/core/printable.hpp>
#include <replicator/job/epochs.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

inline constexpr const char* take_in_sentence = "Start it again with the same command and RANK, and they take it in";
inline std::string left_out_sentence(int rank, const ProcessInfo& info) {
  return describe_process(rank, info) + " was stopped or cut off for too long: the others go on without it. " + take_in_sentence;
}

// An entry at the arbiter: the membership of one epoch, and the process that entered it.
struct Claim {
  Epoch epoch;
  std::string by;
  bool operator==(const Claim&) const = default;
};
// Enters a claim unless its epoch number is taken. Returns the claim that holds the number. Where it must
// ask again it calls `beat` in between. Throws CommunicationError where the arbiter cannot be asked.
using Arbiter = std::function<Claim(const Claim& wanted, const std::function<void()>& beat)>;

// Processes keep their numbers of the first rendezvous. **Two parts of a job must never both go on.** So the process that
// gathers one part decides by the rule of Epochs. If there is an arbiter, it asks that. A missing process counts as lost in two cases:
//
// - its host answers that nobody listens at its regroup address: it is dead;
// - it is on this machine, and has been told that it is left out. No link can be cut there, and it reads its messages
//   before it decides. Of two such parts, at least one is told: each tells first, and then looks.
//
// Other hosts are told too, so that their processes end soon. Nothing depends on whether they read it: an acknowledgement
// of TCP says that the other kernel has the bytes, not that the process has read them.
class Survivors {
 public:
  // `secret`: known only to the processes of this job.
  Survivors(int self, std::uint64_t secret, std::vector<RegroupAddress> regroup_addresses)
      : self_{self}, secret_{secret}, regroup_addresses_{std::move(regroup_addresses)}, gone_(regroup_addresses_.size()), parted_(regroup_addresses_.size()), dead_(regroup_addresses_.size()), lives_(regroup_addresses_.size()), epochs_{regroup_addresses_.size()} {}

  // Writes the table for a process that comes back. The table must list it already (see admit).
  FrameWriter& write(FrameWriter& frame) const {
    frame.number(secret_).number(regroup_addresses_.size());
    for (std::size_t r = 0; r < regroup_addresses_.size(); ++r)
      frame.text(regroup_addresses_[r].address).number(regroup_addresses_[r].port).number(lives_[r]).number(gone_[r] ? 1 : 0);
    return epochs_.write(frame);
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
    result.epochs_ = Epochs::read(processes, fields);
    result.met_ = false;
    return result;
  }
  // Expects a process that was restarted.
  void admit(int process, RegroupAddress regroup_address, std::uint64_t life) {
    const auto r = static_cast<std::size_t>(process);
    regroup_addresses_.at(r) = std::move(regroup_address);
    lives_[r] = life;
    gone_[r] = parted_[r] = dead_[r] = false;
  }
  // The incarnation of the process that the job knows: how often its number was admitted to the running job.
  std::uint64_t life(std::size_t process) const { return lives_[process]; }

  const RegroupAddress& regroup_address(int process) const { return regroup_addresses_[static_cast<std::size_t>(process)]; }
  bool gone(std::size_t process) const { return gone_[process]; }
  // Whether the job has gone on without the process.
  bool parted(std::size_t process) const { return parted_[process]; }
  void lose(int process) { gone_.at(static_cast<std::size_t>(process)) = true; }

  std::uint64_t secret() const { return secret_; }
  const Epochs& epochs() const { return epochs_; }
  // What this process knows of the epochs, for the others; and what another one knows. learn() throws CommunicationError for
  // bytes that knowledge() has not made.
  Bytes knowledge() const {
    FrameWriter frame{FrameKind::hello};
    const auto fields = epochs_.write(frame).fields();
    return {fields.begin(), fields.end()};
  }
  void learn(const Bytes& knowledge) {
    FrameReader fields{knowledge};
    epochs_.learn(Epochs::read(lives_.size(), fields));
  }
  // All members of the latest epoch have entered it.
  void confirm() { epochs_.confirm(); }
  // All decisions go through the arbiter from now on.
  void ask(Arbiter arbiter) { arbiter_ = std::move(arbiter); }

  // Marks absent processes as gone: those at an address where nobody listens; with `late`, all of them. Where this part may
  // not go on, it also looks for those that are gone: they may be dead by now, or be found again. It looks for many at once,
  // which may take half a second, and calls `beat` after it; others may arrive in that.
  void strike(const std::vector<bool>& here, bool late, const std::function<void()>& beat) {
    const auto now = RendezvousClock::now();
    const bool look = now >= next_look_;
    if (look) next_look_ = now + std::chrono::milliseconds{200};
    const bool decided = awaits(here) || may_go_on(here);
    std::vector<std::size_t> absent;
    for (std::size_t r = 0; r < here.size(); ++r)
      if (!here[r] && counts(r) && !dead_[r] && !(gone_[r] && decided)) absent.push_back(r);
    std::vector<int> numbers;
    for (std::size_t first = 0; look && first < absent.size(); first += probed_at_once) {
      const auto some = probe(std::span{absent}.subspan(first, std::min(probed_at_once, absent.size() - first)));
      numbers.insert(numbers.end(), some.begin(), some.end());
      beat();
    }
    if (!look) beat();
    for (std::size_t i = 0; i < absent.size(); ++i) {
      const auto r = absent[i];
      const int number = look ? numbers[i] : ETIMEDOUT;
      if (here[r]) continue;
      if (number == ECONNREFUSED) dead_[r] = true;
      if (number == 0 && gone_[r] && !parted_[r] && static_cast<int>(r) < self_) found_ = true, gone_[r] = false;
      if (late || dead_[r]) gone_[r] = true;
    }
  }
  // Whether a lower process that was thought to be gone can be reached again; once.
  bool found_lower() { return std::exchange(found_, false); }
  // Whether processes that are not known to be gone are absent.
  bool awaits(const std::vector<bool>& here) const {
    for (std::size_t r = 0; r < here.size(); ++r)
      if (!here[r] && !gone_[r]) return true;
    return false;
  }
  // Whether those who are here need no arbiter, and no further proof that others are dead.
  bool may_go_on(const std::vector<bool>& here) const {
    return epochs_.may_go_on(part_of(here), [this](std::size_t r) { return outside(r, !arbiter_); });
  }

  // Whether there is an arbiter, and a majority elsewhere that may want to be the first there.
  bool lets_majority_go_first(const std::vector<bool>& here) const {
    return arbiter_ && epochs_.majority_may_live_outside(part_of(here), [this](std::size_t r) { return outside(r, false); });
  }

  // Those who are here form the next epoch, and the absent processes are told that they are left out. Throws
  // CommunicationError where this part of the job must not go on. Calls `beat` before each message, which may take a second.
  void part_from_missing(const std::vector<bool>& here, const std::function<void()>& beat) {
    if (!met_ && std::count(here.begin(), here.end(), true) == 1)
      throw CommunicationError{"none of the processes of the job came to meet process " + std::to_string(self_) + ", which they had taken in", self_};
    if (arbiter_) claim(here, beat);
    else if (!may_go_on(here)) throw CommunicationError{minority_sentence(here), self_};
    std::vector<bool> told(here.size());
    for (std::size_t r = 0; r < here.size(); ++r) {
      beat();
      if (!here[r] && counts(r) && !dead_[r] && (!parted_[r] || on_this_machine(r))) told[r] = tell(r);
    }
    if (arbiter_) return;
    if (!epochs_.may_go_on(part_of(here), [&](std::size_t r) { return outside(r, told[r]); })) throw CommunicationError{minority_sentence(here), self_};
    epochs_.propose(part_of(here));
  }
  // The job continues with those who are here. Later messages from the others do not count. Throws CommunicationError where
  // another part of the job has said that this process is left out.
  void settle(const std::vector<bool>& here) {
    if (told_) throw CommunicationError{left_out_sentence(self_, this_process()), self_};
    for (std::size_t r = 0; r < here.size(); ++r) gone_[r] = parted_[r] = !here[r];
    met_ = true;
  }
  // Another process says that this one is left out of an epoch. That counts if the epoch is new, and if the sender belongs
  // to another part of the job, or was admitted there since. It does not count from an earlier life of a process of this
  // part.
  void hear(FrameReader fields) {
    const auto secret = fields.number(), from = fields.number(), life = fields.number(), epoch = fields.number();
    if (secret != secret_ || from >= parted_.size() || life < lives_[from] || epoch <= epochs_.confirmed().number) return;
    told_ |= life > lives_[from] || !parted_[from];
  }
  bool told() const { return told_; }

 private:
  // Whether the decision about the next epoch depends on the process. That is also so for a process that was left out of an
  // epoch which is not confirmed yet. The process that decided this knew that it was dead, but may have died since. So this
  // process must find out itself.
  bool counts(std::size_t process) const { return !parted_[process] || epochs_.has(process); }
  // Looks whether somebody listens at the regroup addresses of these processes. Returns 0 or an errno for each.
  std::vector<int> probe(std::span<const std::size_t> processes) const {
    std::vector<int> numbers;
    std::vector<SocketAddress> addresses(processes.size());
    std::vector<FileDescriptor> sockets(processes.size());
    std::vector<Connecting> begun;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      numbers.push_back(open_towards(processes[i], addresses[i], sockets[i]));
      if (numbers[i] == 0) begun.push_back({sockets[i].get(), &addresses[i]});
    }
    auto next = finish_connecting(begun, connecting_limit);
    for (auto found = next.begin(); auto& number : numbers)
      if (number == 0) number = *found++;
    return numbers;
  }
  // Returns 0 or an errno.
  int reach(std::size_t process, FileDescriptor& socket) const {
    SocketAddress address;
    if (const int number = open_towards(process, address, socket); number != 0) return number;
    return finish_connecting(socket.get(), address, connecting_limit);
  }
  int open_towards(std::size_t process, SocketAddress& address, FileDescriptor& socket) const {
    const auto found = numeric_address(regroup_addresses_[process].address);
    if (!found) return EADDRNOTAVAIL;
    address = *found;
    address.set_port(regroup_addresses_[process].port);
    socket = FileDescriptor{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    return socket ? 0 : errno;
  }
  // Tells a process that it is left out of the next epoch. Returns true once the message is in its queue, or it is dead. A process
  // that is just ending breaks the connection, and a moment later nobody listens there: so this looks again, for a second.
  bool tell(std::size_t process) {
    const auto own = static_cast<std::size_t>(self_);
    const auto epoch = epochs_.latest() + (arbiter_ ? 0 : 1);
    const auto frame = FrameWriter{FrameKind::left_out}.number(secret_).number(own).number(lives_[own]).number(epoch).finish();
    const auto until = RendezvousClock::now() + std::chrono::seconds{1};
    do {
      FileDescriptor socket;
      const int number = reach(process, socket);
      dead_[process] = number == ECONNREFUSED;
      if (dead_[process]) return true;
      if (number != 0 && number != ECONNRESET) return false;
      if (number == 0 && ::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(frame.size())) {
        if (!on_this_machine(process)) return false;
        if (is_taken(socket, until)) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    } while (RendezvousClock::now() < until);
    return false;
  }
  // Waits until the other kernel has all bytes of a connection. Returns false if it breaks, or at the deadline.
  static bool is_taken(const FileDescriptor& socket, RendezvousClock::time_point until) {
    do {
      int unconfirmed = 0, error = 0;
      socklen_t size = sizeof error;
      if (::ioctl(socket.get(), SIOCOUTQ, &unconfirmed) == 0 && unconfirmed == 0) return true;
      if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    } while (RendezvousClock::now() < until);
    return false;
  }
  Outside outside(std::size_t process, bool told) const {
    if (on_this_machine(process)) return dead_[process] || told ? Outside::gone_here : Outside::unknown;
    return dead_[process] ? Outside::gone : Outside::unknown;
  }
  bool on_this_machine(std::size_t process) const {
    return regroup_addresses_[process].address == regroup_addresses_[static_cast<std::size_t>(self_)].address;
  }

  Epoch part_of(const std::vector<bool>& here) const {
    Epoch result{0, lives_};
    for (std::size_t r = 0; r < here.size(); ++r)
      if (!here[r]) result.lives[r] = Epoch::absent;
    return result;
  }
  // Takes the next epoch at the arbiter. An epoch that was taken before, with all who are here in it, is theirs too: they
  // lost somebody on the way into it.
  void claim(const std::vector<bool>& here, const std::function<void()>& beat) {
    for (;;) {
      Claim wanted{part_of(here), describe_process(self_, this_process())};
      wanted.epoch.number = epochs_.latest() + 1;
      const auto held = ask_arbiter(wanted, beat);
      const auto count = static_cast<std::size_t>(std::count(here.begin(), here.end(), true));
      if (held.epoch.number != wanted.epoch.number || held.epoch.lives.size() != here.size() || held.epoch.of(wanted.epoch) != count)
        throw CommunicationError{describe_process(self_, this_process()) + " ends: " + printable(held.by, 300) + " has taken epoch " + std::to_string(wanted.epoch.number) +
                                     " of this job for " + names_of(held.epoch, true) +
                                     ". Start the processes that are left out again with the same command and RANK, and they are taken in",
                                 self_};
      epochs_.confirm(held.epoch);
      if (held == wanted) return;
    }
  }

  Claim ask_arbiter(const Claim& wanted, const std::function<void()>& beat) const {
    try {
      return arbiter_(wanted, beat);
    } catch (const CommunicationError& error) {
      throw CommunicationError{describe_process(self_, this_process()) + " ends: this part of the job cannot take epoch " + std::to_string(wanted.epoch.number) + ": " + error.what() +
                                   ". Start it again with the same command and RANK: a part that went on takes it in. If no part went on, start all processes again with --resume",
                               self_};
    }
  }

  // "processes 0, 2"; of the members, or of the other processes.
  static std::string names_of(const Epoch& epoch, bool members) {
    std::string result;
    for (std::size_t r = 0; r < epoch.lives.size(); ++r)
      if (epoch.has(r) == members) result += (result.empty() ? "" : ", ") + std::to_string(r);
    return (result.find(',') == std::string::npos ? "process " : "processes ") + result;
  }
  std::string minority_sentence(const std::vector<bool>& here) const {
    const auto part = part_of(here);
    const auto& last = epochs_.confirmed();
    auto missing = last;
    for (std::size_t r = 0; r < here.size(); ++r)
      if (here[r] || dead_[r]) missing.lives[r] = Epoch::absent;
    const auto others = missing.size() > 0 ? names_of(missing, true) + " may go on without it" : "the others, which are dead, may have gone on before";
    return describe_process(self_, this_process()) + " ends: this part of the job has " + std::to_string(last.of(part)) + " of the " +
           std::to_string(last.size()) + " members of epoch " + std::to_string(last.number) + ", which is no majority, and " + others +
           ". Start it again with the same command and RANK: a part that went on takes it in. If no part went on, start all "
           "processes again with --resume. With --elastic-arbiter also half of a job can go on";
  }

  int self_;
  std::uint64_t secret_;
  std::vector<RegroupAddress> regroup_addresses_;
  std::vector<bool> gone_;    // as far as this process knows
  std::vector<bool> parted_;  // the job has continued without them
  std::vector<bool> dead_;    // nobody listens at their regroup addresses
  std::vector<std::uint64_t> lives_;
  Epochs epochs_;
  Arbiter arbiter_;  // empty: there is none
  static constexpr std::chrono::milliseconds connecting_limit{500};
  static constexpr std::size_t probed_at_once = 64;  // each takes a file descriptor for that time
  bool met_ = true;                                  // false: this process is about to meet the others for the first time
  bool told_ = false, found_ = false;
  RendezvousClock::time_point next_look_{};
};

}  // namespace replicator::detail::transport::detail
