// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, and transports with fewer abilities.
#pragma once

#include <catch2/catch.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <replicator/transport/in_process.hpp>

namespace replicator::test {

using namespace replicator::detail;

namespace rt = replicator::detail::transport;

// InProcess without its ability to read peers: collectives are lowered to messages.
class MessagesOnly {
 public:
  MessagesOnly(rt::InProcessGroup& group, int rank) : inner_{group, rank} {}
  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  rt::Latency latency() const { return rt::Latency::messages; }
  rt::Region allocate(std::size_t bytes) { return inner_.allocate(bytes); }
  void release(rt::Region region) { inner_.release(region); }
  rt::Ticket send(std::span<const std::byte> out, int peer, rt::Slot slot) { return inner_.send(out, peer, slot); }
  rt::Ticket recv(std::span<std::byte> in, int peer, rt::Slot slot) { return inner_.recv(in, peer, slot); }
  bool done(rt::Ticket ticket) { return inner_.done(ticket); }
  void progress() { inner_.progress(); }
  static bool flushed() { return true; }
  static int unsent_to() { return -1; }
  bool wait(const std::function<bool()>& ready, rt::Clock::time_point until) { return inner_.wait(ready, until); }

 protected:
  rt::InProcess inner_;
};
static_assert(rt::Transport<MessagesOnly> && !rt::PeerReadable<MessagesOnly>);

// InProcess whose peers can be read but not written.
class LoadsOnly : public MessagesOnly {
 public:
  LoadsOnly(rt::InProcessGroup& group, int rank) : MessagesOnly{group, rank} {}
  rt::Latency latency() const { return inner_.latency(); }
  const std::byte* peer(rt::Region region, int peer) { return inner_.peer(region, peer); }
  void notify() { inner_.notify(); }
};
static_assert(rt::PeerReadable<LoadsOnly> && !rt::PeerWritable<LoadsOnly>);

inline rt::Clock::time_point soon() { return rt::Clock::now() + std::chrono::seconds{20}; }

// Runs fn(rank) on a thread each and reports every rank's failure.
template <class F>
void run_ranks(rt::InProcessGroup& group, F&& fn) {
  std::vector<std::string> failures(static_cast<std::size_t>(group.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        fn(rank);
      } catch (const std::exception& error) {
        failures[static_cast<std::size_t>(rank)] = error.what();
        group.abort({"rank " + std::to_string(rank) + " failed", rank});
      }
    });
  for (auto& thread : threads) thread.join();
  for (int rank = 0; rank < group.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(failures[static_cast<std::size_t>(rank)] == "");
  }
}

}  // namespace replicator::test
