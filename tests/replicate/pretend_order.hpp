// SPDX-License-Identifier: Apache-2.0
// Order: finds missing waits between the queues of pretended devices, by vector clocks. Two pieces of work conflict if they use the
// same memory and one of them writes it. Of these, one must come after the other: in the same queue, by an event, or because the
// host has waited. It is found when the work is given to the queue, whatever the queues have done by then.
// Source: Flanagan and Freund, "FastTrack: Efficient and Precise Dynamic Race Detection", PLDI 2009.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace replicator::test::pretend {

// Memory that some work reads or writes.
struct Access {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};
using Accesses = std::vector<Access>;

// Only one thread may call it at a time.
class Order {
 public:
  // How much of each queue's work comes before some point, by queue.
  using Clock = std::vector<std::uint64_t>;

  // Queues of a process of a job have numbers of their own, so that its clocks mean something to the others. Call it first.
  static constexpr int most_queues = 100, most_processes = 4;
  void set_process(int process) { first_ = process * most_queues; }
  // Adds a queue of a device, and returns its number.
  int add(int device) {
    std::size_t place = 0;
    while (place < queues_.size() && queues_[place].device >= 0) ++place;
    if (place == queues_.size()) queues_.emplace_back();
    queues_[place].device = device;
    return first_ + static_cast<int>(place);
  }
  // The host has waited for all of its work.
  void remove(int number) {
    host_sees(number);
    queue(number).device = -1;
    if (std::all_of(queues_.begin(), queues_.end(), [](const Queue& each) { return each.device < 0; })) {
      const int first = first_;
      *this = {};
      first_ = first;
    }
  }
  // The queue is given work. Returns the conflict with other work that may still run, or an empty text. `what`: "a copy".
  std::string submit(int number, const Accesses& accesses, const char* what) {
    auto& clock = queue(number).clock;
    join(clock, host_);
    const Use use{number, ++at(clock, number), what};
    std::string conflict;
    for (const auto& access : accesses) {
      split(access.begin);
      split(access.begin + access.bytes);
    }
    for (const auto& access : accesses)
      if (conflict.empty()) conflict = conflict_of(access, use);
    for (const auto& access : accesses) note(access, use);
    return conflict;
  }
  // What an event stands for that is recorded now.
  Clock record(int number) const { return queue(number).clock; }
  void wait(int number, const Clock& event) { join(queue(number).clock, event); }
  // The host has seen that an event happened, or that a queue is empty. Of one thread all others are thought to know: how they tell
  // each other is not seen here.
  void host_sees(const Clock& event) { join(host_, event); }
  void host_sees(int number) { join(host_, queue(number).clock); }
  // Memory that is released.
  void forget(const std::byte* begin, std::size_t bytes) {
    split(begin);
    split(begin + bytes);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(begin + bytes));
  }

 private:
  struct Queue {
    int device = -1;  // none: its number is free
    Clock clock;
  };
  struct Use {
    int queue = -1;  // nobody
    std::uint64_t time = 0;
    const char* what = "";
  };
  // Memory with the same uses.
  struct Piece {
    const std::byte* end = nullptr;
    Use write;
    std::vector<Use> reads;  // since then, the last of each queue
  };

  static constexpr auto unordered = ", and nothing makes it wait";

  Queue& queue(int number) { return queues_[static_cast<std::size_t>(number - first_)]; }
  const Queue& queue(int number) const { return queues_[static_cast<std::size_t>(number - first_)]; }
  static std::uint64_t& at(Clock& clock, int number) {
    if (clock.size() <= static_cast<std::size_t>(number)) clock.resize(static_cast<std::size_t>(number) + 1);
    return clock[static_cast<std::size_t>(number)];
  }
  static void join(Clock& clock, const Clock& other) {
    if (clock.size() < other.size()) clock.resize(other.size());
    for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
  }

  void split(const std::byte* where) {
    auto after = pieces_.upper_bound(where);
    if (after == pieces_.begin()) return;
    auto& [begin, piece] = *--after;
    if (begin == where || piece.end <= where) return;
    pieces_.emplace(where, piece);
    piece.end = where;
  }
  std::string conflict_of(const Access& access, const Use& use) {
    for (auto piece = pieces_.lower_bound(access.begin); piece != pieces_.end() && piece->first < access.begin + access.bytes; ++piece) {
      if (!ordered(piece->second.write, use)) return text(use) + (access.writes ? " writes" : " reads") + " what " + text(piece->second.write) + " writes" + unordered;
      if (access.writes)
        for (const auto& read : piece->second.reads)
          if (!ordered(read, use)) return text(use) + " writes what " + text(read) + " reads" + unordered;
    }
    return {};
  }
  bool ordered(const Use& before, const Use& now) { return before.queue < 0 || before.time <= at(queue(now.queue).clock, before.queue); }
  std::string text(const Use& use) const { return std::string{use.what} + " in queue " + std::to_string(use.queue) + " of cuda:" + std::to_string(queue(use.queue).device); }
  void note(const Access& access, const Use& use) {
    const auto* const end = access.begin + access.bytes;
    if (access.writes) {
      pieces_.erase(pieces_.lower_bound(access.begin), pieces_.lower_bound(end));
      if (access.bytes) pieces_.emplace(access.begin, Piece{end, use, {}});
      return;
    }
    auto next = pieces_.lower_bound(access.begin);
    for (const auto* begin = access.begin; begin < end; begin = next->second.end, ++next) {
      if (next == pieces_.end() || next->first > begin) next = pieces_.emplace(begin, Piece{next == pieces_.end() ? end : std::min(end, next->first), {}, {}}).first;
      auto& reads = next->second.reads;
      std::erase_if(reads, [&](const Use& read) { return read.queue == use.queue; });
      reads.push_back(use);
    }
  }

  int first_ = 0;
  std::vector<Queue> queues_;
  Clock host_;
  std::map<const std::byte*, Piece> pieces_;  // by where they begin
};

}  // namespace replicator::test::pretend
