// SPDX-License-Identifier: Apache-2.0
// One process's mappings of the shared memory of all ranks of a host.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <replicator/core/error.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/cores_of_host.hpp>
#include <replicator/job/host_identity.hpp>
#include <replicator/job/job.hpp>
#include <replicator/job/process_table.hpp>
#include <replicator/transport/doorbell.hpp>
#include <replicator/transport/memory_file.hpp>
#include <replicator/transport/pass_descriptors.hpp>
#include <replicator/transport/shared_ring.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// The first bytes of every rank's file. Behind it lie one ring from every rank, then the regions.
struct ControlPage {
  static constexpr std::uint32_t compared = 1024;
  Doorbell bell;
  std::uint64_t sizes[compared];  // of the latest regions, see SharedPool::agree
};

// Shared by the endpoints of a process, so that each region is mapped once per process. Every rank has one file that only
// grows. A region lies at the same offset in all files, so allocating needs no message to the others. The last word of a
// region of rank 0 counts the ranks that have released it. The last one gives the memory of all back; the offsets are not used
// again.
class SharedPool {
 public:
  // Where a region lies in the file of every rank.
  struct Place {
    std::size_t offset, bytes;
  };
  static Place place_of_region(std::size_t offset, std::size_t bytes) { return {offset, round_to_pages(bytes + sizeof(std::uint64_t))}; }

  // Collective over the processes of the job.
  SharedPool(Job& job, const std::vector<int>& process_of_rank) : ranks_{process_of_rank.size()} {
    check_process_table(job, process_of_rank);
    cores_ = cores_of_host(job, require_one_host(job));
    std::vector<MemoryFile> mine;
    std::vector<int> descriptors;
    for (const int owner : process_of_rank)
      if (owner == job.rank()) {
        mine.push_back(MemoryFile::create());
        descriptors.push_back(mine.back().descriptor());
      }
    auto all = exchange_descriptors(job, descriptors);
    std::vector<std::size_t> taken(all.size());
    for (const int owner : process_of_rank) {
      const auto p = static_cast<std::size_t>(owner);
      require_contribution(taken[p] < all[p].size(), owner, all[p].size() * sizeof(int), "the exchange of shared memory");
      files_.emplace_back(std::move(all[p][taken[p]++]));
      heads_.push_back(files_.back().map(0, head_bytes()));
    }
  }

  std::size_t ranks() const { return ranks_; }
  // Number of cores that the processes have together; equal on every process.
  int cores() const { return cores_; }
  ControlPage& control(std::size_t rank) const { return *reinterpret_cast<ControlPage*>(heads_[rank].data()); }
  SharedRing& ring(std::size_t from, std::size_t to) const {
    return reinterpret_cast<SharedRing*>(heads_[to].data() + round_to_pages(sizeof(ControlPage)))[from];
  }
  std::size_t head_bytes() const {
    return round_to_pages(round_to_pages(sizeof(ControlPage)) + ranks_ * sizeof(SharedRing));
  }

  // Maps region `id` of every rank. Any thread may call it, once for each rank of this process. The pointers stay valid until
  // release().
  std::vector<std::byte*> map(std::uint32_t id, const Place& place) {
    const std::scoped_lock lock{mutex_};
    auto found = regions_.find(id);
    if (found == regions_.end()) {
      Region made{place, {}};
      for (const auto& file : files_) made.mappings.push_back(file.map(place.offset, place.bytes));
      found = regions_.emplace(id, std::move(made)).first;
    }
    auto& region = found->second;
    ++region.users;
    std::vector<std::byte*> result;
    for (const auto& mapping : region.mappings) result.push_back(mapping.data());
    return result;
  }
  // Once for each rank of this process.
  void release(std::uint32_t id) {
    const std::scoped_lock lock{mutex_};
    const auto found = regions_.find(id);
    auto& region = found->second;
    const std::atomic_ref released{*reinterpret_cast<std::uint64_t*>(region.mappings[0].data() + region.place.bytes - sizeof(std::uint64_t))};
    if (released.fetch_add(1) + 1 == ranks_)
      for (const auto& file : files_) file.discard(region.place.offset, region.place.bytes);
    if (--region.users == 0) regions_.erase(found);
  }

  // Notes that `rank` allocates region `id`, and compares the size with ranks whose latest regions include it. Throws
  // BuildError.
  void agree(std::size_t rank, std::uint32_t id, std::size_t bytes) const {
    // The upper 20 bits say which of the regions that share the word it is, so that 0 is no region. The lower ones are the size.
    constexpr int size_bits = 44;
    const auto round = std::uint64_t{id / ControlPage::compared + 1} << size_bits;
    const auto word_of = [&](std::size_t r) { return std::atomic_ref{control(r).sizes[id % ControlPage::compared]}; };
    word_of(rank).store(round | bytes, std::memory_order_release);
    full_fence();  // so that of two ranks at least the later one sees the other
    for (std::size_t r = 0; r < ranks_; ++r) {
      const auto theirs = word_of(r).load(std::memory_order_acquire);
      if (theirs >> size_bits == round >> size_bits && theirs != (round | bytes))
        throw BuildError{"rank " + std::to_string(rank) + " allocates " + std::to_string(bytes) +
                         " bytes as shared region " + std::to_string(id) + ", but rank " + std::to_string(r) +
                         " allocates " + std::to_string(theirs ^ round) +
                         ": all ranks must allocate the same sizes in the same order"};
    }
  }

 private:
  static std::vector<int> require_one_host(Job& job) {
    auto hosts = host_of_processes(job);
    const auto other = std::find_if(hosts.begin(), hosts.end(), [](int host) { return host != 0; });
    if (other != hosts.end())
      throw BuildError{job.describe(static_cast<int>(other - hosts.begin())) + " cannot share memory with " +
                       job.describe(0) + ": they are on different hosts, in different namespaces of names, or of different users; use ucx"};
    return hosts;
  }

  std::size_t ranks_;
  int cores_ = 0;
  std::vector<MemoryFile> files_;
  std::vector<Mapping> heads_;
  struct Region {
    Place place;
    std::vector<Mapping> mappings;  // [rank]
    int users = 0;                  // ranks of this process that have it mapped
  };
  std::mutex mutex_;
  std::map<std::uint32_t, Region> regions_;  // by id
};

}  // namespace replicator::detail::transport::detail
