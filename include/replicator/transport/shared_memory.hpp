// SPDX-License-Identifier: Apache-2.0
// The transport between ranks of one host, in any number of processes. Peers read and write each other's memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/job/job.hpp>
#include <replicator/transport/doorbell.hpp>
#include <replicator/transport/message_matcher.hpp>
#include <replicator/transport/shared_pool.hpp>
#include <replicator/transport/spin.hpp>
#include <replicator/transport/transport.hpp>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::detail::transport {

// The endpoint of one rank. Its memory is an anonymous file that the peers map, so nothing is left behind, even after
// SIGKILL. Peers read large data in place. Messages of any size go through one ring for each pair of ranks.
class SharedMemory {
 public:
  // Makes the endpoints of this process's ranks, in ascending order; process_of_rank[r] owns rank r. Collective: one thread
  // of each process calls it; the endpoints may then be used by other threads. The job must outlive them. Throws BuildError
  // where the processes cannot share memory.
  static std::vector<std::unique_ptr<SharedMemory>> create(Job& job, const std::vector<int>& process_of_rank) {
    const auto pool = std::make_shared<detail::SharedPool>(job, process_of_rank);
    std::vector<std::unique_ptr<SharedMemory>> result;
    for (std::size_t r = 0; r < process_of_rank.size(); ++r)
      if (process_of_rank[r] == job.rank()) result.emplace_back(new SharedMemory{job, pool, r});
    return result;
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int rank() const noexcept { return static_cast<int>(rank_); }
  int size() const noexcept { return static_cast<int>(pool_->ranks()); }
  Latency latency() const noexcept { return spin_.crowded() ? Latency::crowded_memory : Latency::memory; }

  // Does not wait for the other ranks. Throws BuildError where another rank has allocated a different size.
  Region allocate(std::size_t bytes) {
    job_.check();
    const auto id = next_region_;
    pool_->agree(rank_, id, bytes);
    const auto place = detail::SharedPool::place_of_region(end_, bytes);
    const auto& mapped = regions_[id] = pool_->map(id, place);
    end_ += place.bytes;
    ++next_region_;
    return {mapped[rank_], bytes, id};
  }
  void release(Region region) {
    regions_.erase(region.id);
    pool_->release(region.id);
  }

  // The same region of another rank. It holds zeros until it is written.
  const std::byte* peer(Region region, int peer) const { return writable_peer(region, peer); }
  std::byte* writable_peer(Region region, int peer) const { return regions_.at(region.id)[static_cast<std::size_t>(peer)]; }

  // Wakes peers that sleep. Call it after seq_cst stores into the own memory.
  void notify() {
    for (std::size_t r = 0; r < pool_->ranks(); ++r)
      if (r != rank_) detail::ring_if_asleep(pool_->control(r).bell);
  }

  Ticket send(std::span<const std::byte> out, int peer, Slot slot) {
    job_.check();
    const auto ticket = mailbox_.send(out, peer, slot);
    progress();
    return ticket;
  }

  Ticket recv(std::span<std::byte> in, int peer, Slot slot) {
    job_.check();
    return guarded([&] { return mailbox_.recv(in, peer, slot); });
  }

  bool done(Ticket ticket) {
    if (mailbox_.done(ticket)) return true;
    job_.check();
    return false;
  }

  void progress() {
    job_.check();
    const auto& touched = guarded([&]() -> const std::vector<int>& { return mailbox_.progress(); });
    if (touched.empty()) return;
    detail::full_fence();  // behind the writes to all rings: see doorbell.hpp
    for (const int peer : touched) detail::ring_if_asleep(pool_->control(static_cast<std::size_t>(peer)).bell);
  }

  // A message that is done lies in its peer's ring.
  static bool flushed() { return true; }
  static int unsent_to() { return -1; }

  bool wait(const std::function<bool()>& ready, Clock::time_point until) {
    const auto look = [&] {
      if (ready()) return true;
      progress();
      return false;
    };
    job_.check();
    if (spin_(look, until)) return true;
    while (Clock::now() < until) {
      detail::Sleeper sleeper{pool_->control(rank_).bell};
      progress();
      if (ready()) return true;
      sleeper.sleep(until);
    }
    progress();
    return ready();
  }

 private:
  SharedMemory(Job& job, std::shared_ptr<detail::SharedPool> pool, std::size_t rank)
      : job_{job},
        pool_{std::move(pool)},
        rank_{rank},
        end_{pool_->head_bytes()},
        spin_{static_cast<int>(pool_->ranks()), pool_->cores()},
        mailbox_{static_cast<int>(rank), rings(true), rings(false)},
        hook_{job.on_abort([bell = &pool_->control(rank).bell] { detail::ring(*bell); })} {}

  std::vector<detail::SharedRing*> rings(bool incoming) const {
    std::vector<detail::SharedRing*> result;
    for (std::size_t r = 0; r < pool_->ranks(); ++r)
      result.push_back(incoming ? &pool_->ring(r, rank_) : &pool_->ring(rank_, r));
    return result;
  }

  // An error that this rank finds ends the job for all, with this sentence.
  template <class Action>
  std::invoke_result_t<Action&> guarded(Action&& action) {
    try {
      return action();
    } catch (const CommunicationError& error) {
      job_.abort(error.what(), job_.rank());
      job_.check();
      throw;
    }
  }

  Job& job_;
  std::shared_ptr<detail::SharedPool> pool_;
  std::size_t rank_;
  std::size_t end_;  // current end of the file
  Spin spin_;
  std::map<std::uint32_t, std::vector<std::byte*>> regions_;  // by id, then rank
  std::uint32_t next_region_ = 0;
  detail::MessageMatcher mailbox_;
  Job::Hook hook_;
};

static_assert(PeerWritable<SharedMemory>);

}  // namespace replicator::detail::transport
