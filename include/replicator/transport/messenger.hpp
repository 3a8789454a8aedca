// SPDX-License-Identifier: Apache-2.0
// A virtual interface to the messages of a Transport, for users that are no template of the transport.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <replicator/transport/transport.hpp>
#include <span>
#include <utility>

namespace replicator::detail::transport {

// The messages of one rank; used by one thread at a time. Each function does what the transport's function does.
class Messenger {
 public:
  Messenger() = default;
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;
  virtual ~Messenger() = default;
  virtual Ticket send(std::span<const std::byte> out, int peer, Slot slot) = 0;
  virtual Ticket recv(std::span<std::byte> in, int peer, Slot slot) = 0;
  virtual bool done(Ticket ticket) = 0;
  virtual bool flushed() = 0;
  virtual int unsent_to() = 0;
  virtual bool wait(const std::function<bool()>& ready, Clock::time_point until) = 0;
};

// The messenger of a transport's endpoint, which it owns.
template <Transport T>
class MessengerOf final : public Messenger {
 public:
  explicit MessengerOf(std::unique_ptr<T> endpoint) : endpoint_{std::move(endpoint)} {}
  Ticket send(std::span<const std::byte> out, int peer, Slot slot) override { return endpoint_->send(out, peer, slot); }
  Ticket recv(std::span<std::byte> in, int peer, Slot slot) override { return endpoint_->recv(in, peer, slot); }
  bool done(Ticket ticket) override { return endpoint_->done(ticket); }
  bool flushed() override { return endpoint_->flushed(); }
  int unsent_to() override { return endpoint_->unsent_to(); }
  bool wait(const std::function<bool()>& ready, Clock::time_point until) override { return endpoint_->wait(ready, until); }

 private:
  std::unique_ptr<T> endpoint_;
};

}  // namespace replicator::detail::transport
