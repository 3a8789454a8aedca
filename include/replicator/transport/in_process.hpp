// SPDX-License-Identifier: Apache-2.0
// The transport between ranks that are threads of one process. Models Transport, PeerReadable and PeerWritable.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/devices/pages.hpp>
#include <replicator/transport/spin.hpp>
#include <replicator/transport/transport.hpp>
#include <string>
#include <vector>

namespace replicator::detail::transport {

class InProcess;

// The state that the endpoints of one job share; it must outlive them.
class InProcessGroup {
 public:
  // Throws BuildError unless ranks >= 1.
  explicit InProcessGroup(int ranks) : ranks_{ranks}, spin_{ranks} {
    if (ranks < 1) throw BuildError{"a group of " + std::to_string(ranks) + " ranks: there must be at least one"};
    for (int rank = 0; rank < ranks; ++rank) inboxes_.emplace_back();
  }
  InProcessGroup(const InProcessGroup&) = delete;
  InProcessGroup& operator=(const InProcessGroup&) = delete;

  int size() const { return ranks_; }

  // Makes every later call of every endpoint throw this error, and wakes sleepers. The first abort counts.
  void abort(const CommunicationError& error) {
    {
      const std::lock_guard lock{mutex_};
      if (!error_) error_ = error;
      aborted_.store(true, std::memory_order_release);
      ++wakes_;
    }
    awake_.notify_all();
  }

 private:
  friend class InProcess;

  struct Post {
    int source;
    std::uint64_t slot;
    std::byte* data;
    std::size_t bytes;
    std::atomic<bool>* done;
  };
  // Sends and receives to one destination that wait for their other end.
  struct Inbox {
    std::mutex mutex;
    std::vector<Post> sends;
    std::vector<Post> recvs;
  };
  struct Memory {
    std::once_flag made;
    replicator::detail::Pages bytes;
  };
  struct Allocation {
    Allocation(std::size_t size, int ranks) : bytes{size}, memory(static_cast<std::size_t>(ranks)) {}
    std::size_t bytes;
    std::vector<Memory> memory;  // [rank]
    int released = 0;            // number of ranks that released it
  };

  void throw_if_aborted() const {
    if (aborted_.load(std::memory_order_acquire)) throw CommunicationError{*error_};
  }

  // A rank's memory: zero-filled, mapped by the first caller. Its pages are allocated only when the rank first writes to
  // them.
  std::byte* memory(std::uint32_t id, std::size_t bytes, int rank) {
    Memory& mine = allocation(id, bytes, rank).memory[static_cast<std::size_t>(rank)];
    std::call_once(mine.made, [&] {
      mine.bytes = replicator::detail::map_pages(bytes);
      if (!mine.bytes) throw CommunicationError{"rank " + std::to_string(rank) + ": cannot map " + std::to_string(bytes) + " B for collectives", rank};
    });
    return mine.bytes.get();
  }
  // An allocation never moves.
  Allocation& allocation(std::uint32_t id, std::size_t bytes, int rank) {
    const std::lock_guard lock{mutex_};
    Allocation& found = allocations_.try_emplace(id, bytes, ranks_).first->second;
    if (found.bytes != bytes)
      throw BuildError{"rank " + std::to_string(rank) + " allocates " + std::to_string(bytes) + " B as region " +
                       std::to_string(id) + ", another rank " + std::to_string(found.bytes) +
                       " B: every rank must allocate the same sizes in the same order"};
    return found;
  }

  void release(std::uint32_t id) {
    const std::lock_guard lock{mutex_};
    const auto found = allocations_.find(id);
    if (++found->second.released == ranks_) allocations_.erase(found);
  }

  void post(int destination, const Post& mine, bool sending) {
    Inbox& inbox = inboxes_[static_cast<std::size_t>(destination)];
    {
      const std::lock_guard lock{inbox.mutex};
      auto& others = sending ? inbox.recvs : inbox.sends;
      const auto other = std::find_if(others.begin(), others.end(), [&](const Post& post) {
        return post.source == mine.source && post.slot == mine.slot;
      });
      if (other == others.end()) {
        (sending ? inbox.sends : inbox.recvs).push_back(mine);
        return;
      }
      if (other->bytes != mine.bytes)
        throw CommunicationError{"a message from rank " + std::to_string(mine.source) + " to rank " +
                                     std::to_string(destination) + " has different sizes at its ends: " +
                                     std::to_string(mine.bytes) + " and " + std::to_string(other->bytes) + " B",
                                 mine.source};
      if (mine.bytes != 0)
        std::memcpy(sending ? other->data : mine.data, sending ? mine.data : other->data, mine.bytes);
      other->done->store(true, std::memory_order_release);
      mine.done->store(true, std::memory_order_release);
      others.erase(other);
    }
    wake();
  }

  // A waiter counts itself as a sleeper, then looks once more, then sleeps. So it sees every word that was stored (seq_cst)
  // before this thread read sleepers_ as zero.
  void notify() {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  void wake() {
    {
      const std::lock_guard lock{mutex_};
      ++wakes_;
    }
    awake_.notify_all();
  }

  // Sleeps until ready() or the time. Returns the last ready().
  bool sleep(const std::function<bool()>& ready, Clock::time_point until) {
    const Sleeper counted{sleepers_};
    for (;;) {
      std::uint64_t before;
      {
        const std::lock_guard lock{mutex_};
        before = wakes_;
      }
      throw_if_aborted();
      if (ready()) return true;
      std::unique_lock lock{mutex_};
      if (!awake_.wait_until(lock, until, [&] { return wakes_ != before; })) break;
    }
    throw_if_aborted();
    return ready();
  }

  struct Sleeper {
    explicit Sleeper(std::atomic<int>& sleepers) : count{sleepers} { count.fetch_add(1, std::memory_order_seq_cst); }
    ~Sleeper() { count.fetch_sub(1, std::memory_order_seq_cst); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    std::atomic<int>& count;
  };

  const int ranks_;
  Spin spin_;
  std::atomic<bool> aborted_{false};
  alignas(64) std::atomic<int> sleepers_{0};
  alignas(64) std::mutex mutex_;  // guards all below except the inboxes
  std::condition_variable awake_;
  std::uint64_t wakes_ = 0;
  std::optional<CommunicationError> error_;          // written once, before aborted_
  std::map<std::uint32_t, Allocation> allocations_;  // [id]
  std::deque<Inbox> inboxes_;                        // [rank]
};

// The endpoint of one rank; used by one thread at a time.
class InProcess {
 public:
  // Throws BuildError for a rank outside the group.
  InProcess(InProcessGroup& group, int rank)
      : group_{&group}, rank_{rank} {
    if (rank < 0 || rank >= group.size())
      throw BuildError{"rank " + std::to_string(rank) + " of a group of " + std::to_string(group.size())};
  }

  int rank() const { return rank_; }
  int size() const { return group_->size(); }
  Latency latency() const { return group_->spin_.crowded() ? Latency::crowded_memory : Latency::memory; }

  Region allocate(std::size_t bytes) {
    group_->throw_if_aborted();
    const Region region{group_->memory(regions_, bytes, rank_), bytes, regions_};
    ++regions_;
    return region;
  }
  void release(Region region) { group_->release(region.id); }

  Ticket send(std::span<const std::byte> out, int peer, Slot slot) {
    // A send's bytes are only read.
    return post(const_cast<std::byte*>(out.data()), out.size(), rank_, peer, slot, true);
  }
  Ticket recv(std::span<std::byte> in, int peer, Slot slot) {
    return post(in.data(), in.size(), peer, rank_, slot, false);
  }
  bool done(Ticket ticket) {
    group_->throw_if_aborted();
    if (!done_[ticket.index].load(std::memory_order_acquire)) return false;
    free_.push_back(ticket.index);
    return true;
  }

  void progress() { group_->throw_if_aborted(); }
  static bool flushed() { return true; }
  static int unsent_to() { return -1; }

  bool wait(const std::function<bool()>& ready, Clock::time_point until) {
    const auto look = [&] {
      group_->throw_if_aborted();
      return ready();
    };
    return group_->spin_(look, until) || group_->sleep(ready, until);
  }

  const std::byte* peer(Region region, int peer) { return writable_peer(region, peer); }
  std::byte* writable_peer(Region region, int peer) { return group_->memory(region.id, region.bytes, peer); }
  // Wakes peers that sleep. Words must have been stored with seq_cst order.
  void notify() { group_->notify(); }

  // Aborts the whole group, see InProcessGroup::abort.
  void abort(const CommunicationError& error) { group_->abort(error); }

 private:
  Ticket post(std::byte* data, std::size_t bytes, int source, int destination, Slot slot, bool sending) {
    group_->throw_if_aborted();
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(done_.size()));
      done_.emplace_back(false);
    }
    const Ticket ticket{free_.back()};
    free_.pop_back();
    done_[ticket.index].store(false, std::memory_order_relaxed);
    group_->post(destination, {source, slot.value(), data, bytes, &done_[ticket.index]}, sending);
    return ticket;
  }

  InProcessGroup* group_;
  int rank_;
  std::uint32_t regions_ = 0;
  std::deque<std::atomic<bool>> done_;  // by ticket; never moves
  std::vector<std::uint32_t> free_;
};

static_assert(PeerWritable<InProcess>);

}  // namespace replicator::detail::transport
