// SPDX-License-Identifier: Apache-2.0
// Messages between ranks over the simulated network, in the order in which they were sent. A long message may only be done
// when its receiver has taken it, as with UCX.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/job/job.hpp>
#include <replicator/job/job_inline.hpp>
#include <replicator/transport/messenger.hpp>

#include <sys/eventfd.h>

#include "kernel.hpp"

namespace simulate {

// All messages of one job.
class Post {
 public:
  using Address = std::tuple<int, int, std::uint64_t>;  // source, destination, slot
  struct Endpoint {
    Process* process = nullptr;
    int event_fd = -1;
  };
  struct Message {
    std::string bytes;
    std::shared_ptr<bool> done;  // null: was done when it was sent
  };

  explicit Post(Kernel& kernel) : kernel_{kernel} {}
  Endpoint& endpoint(int rank) { return endpoints_[rank]; }
  void send(int from, int to, std::uint64_t slot, Message message) {
    auto& way = ways_[{from, to}];
    way.messages.emplace_back(Address{from, to, slot}, std::move(message));
    if (!std::exchange(way.busy, true)) carry(from, to, 200 * ms);
  }
  std::deque<Message>& arrived(int from, int to, std::uint64_t slot) { return arrived_[{from, to, slot}]; }
  void wake(int rank) {
    auto& endpoint = endpoints_[rank];
    if (endpoint.process != nullptr) kernel_.post(*endpoint.process, endpoint.event_fd);
  }

 private:
  struct Way {
    std::deque<std::pair<Address, Message>> messages{};
    bool busy = false;
  };
  void carry(int from, int to, Time retry) {
    const int here = endpoints_[from].process->host, there = host_of(to);
    kernel_.after(kernel_.latency(here, there), [this, from, to, here, there, retry] {
      if (kernel_.unreachable(here, there)) {
        kernel_.after(retry, [this, from, to, retry] { carry(from, to, 2 * retry); });
        return;
      }
      auto& way = ways_[{from, to}];
      auto [address, message] = std::move(way.messages.front());
      way.messages.pop_front();
      arrived_[address].push_back(std::move(message));
      wake(to);
      way.busy = !way.messages.empty();
      if (way.busy) carry(from, to, 200 * ms);
    });
  }
  int host_of(int rank) const {
    const auto found = endpoints_.find(rank);
    return found == endpoints_.end() || found->second.process == nullptr ? 0 : found->second.process->host;
  }

  Kernel& kernel_;
  std::map<int, Endpoint> endpoints_;
  std::map<std::pair<int, int>, Way> ways_;
  std::map<Address, std::deque<Message>> arrived_;
};

class SimulatedMessenger final : public replicator::detail::transport::Messenger {
 public:
  using Ticket = replicator::detail::transport::Ticket;
  using Slot = replicator::detail::transport::Slot;
  using Clock = replicator::detail::transport::Clock;

  SimulatedMessenger(Kernel& kernel, Post& post, replicator::detail::transport::Job& job, int rank) : kernel_{kernel}, post_{post}, job_{job}, rank_{rank}, event_fd_{::eventfd(0, 0)} {
    post_.endpoint(rank) = {&kernel.process(), event_fd_};
    hook_ = job.on_abort([&kernel, fd = event_fd_, process = &kernel.process()] { kernel.post(*process, fd); });
  }
  ~SimulatedMessenger() override { ::close(event_fd_); }

  Ticket send(std::span<const std::byte> out, int peer, Slot slot) override {
    job_.check();
    auto done = kernel_.random().chance(0.5) ? std::make_shared<bool>(false) : nullptr;
    const Ticket ticket{next_++};
    if (done) sends_[ticket.index] = done;
    post_.send(rank_, peer, slot.value(), {std::string{reinterpret_cast<const char*>(out.data()), out.size()}, std::move(done)});
    return ticket;
  }
  Ticket recv(std::span<std::byte> in, int peer, Slot slot) override {
    job_.check();
    const Ticket ticket{next_++};
    receives_.push_back({ticket.index, peer, slot.value(), in});
    return ticket;
  }
  bool done(Ticket ticket) override {
    job_.check();
    match();
    if (const auto found = sends_.find(ticket.index); found != sends_.end()) {
      if (!*found->second) return false;
      sends_.erase(found);
      return true;
    }
    for (const auto& receive : receives_)
      if (receive.ticket == ticket.index) return false;
    return true;
  }
  bool flushed() override { return true; }
  int unsent_to() override { return -1; }
  bool wait(const std::function<bool()>& ready, Clock::time_point until) override {
    for (;;) {
      job_.check();
      if (ready()) return true;
      const auto now = Clock::now();
      if (now >= until) return false;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now).count();
      pollfd event{event_fd_, POLLIN, 0};
      ::poll(&event, 1, static_cast<int>(std::min<long long>(left, 1000000)) + 1);
      std::uint64_t count = 0;
      static_cast<void>(!::read(event_fd_, &count, sizeof count));
    }
  }

 private:
  struct Receive {
    std::uint32_t ticket;
    int peer;
    std::uint64_t slot;
    std::span<std::byte> in;
  };
  // Messages and receives with the same address match in their order.
  void match() {
    for (auto receive = receives_.begin(); receive != receives_.end();) {
      auto& messages = post_.arrived(receive->peer, rank_, receive->slot);
      const bool first = std::none_of(receives_.begin(), receive, [&](const Receive& other) { return other.peer == receive->peer && other.slot == receive->slot; });
      if (messages.empty() || !first) {
        ++receive;
        continue;
      }
      const auto& message = messages.front();
      if (message.bytes.size() != receive->in.size()) kernel_.violation("a message of " + std::to_string(message.bytes.size()) + " bytes meets a receive of " + std::to_string(receive->in.size()));
      else if (!message.bytes.empty()) std::memcpy(receive->in.data(), message.bytes.data(), message.bytes.size());
      if (message.done) *message.done = true, post_.wake(receive->peer);
      messages.pop_front();
      receive = receives_.erase(receive);
    }
  }

  Kernel& kernel_;
  Post& post_;
  replicator::detail::transport::Job& job_;
  int rank_, event_fd_;
  std::uint32_t next_ = 0;
  std::map<std::uint32_t, std::shared_ptr<bool>> sends_;  // not done yet
  std::vector<Receive> receives_;
  replicator::detail::transport::Job::Hook hook_;
};

}  // namespace simulate
