// SPDX-License-Identifier: Apache-2.0
// ShardServer: the parameter server of a process. One thread answers the pulls and pushes of workers on other
// processes, and reads and updates the shards that this process owns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/async/async_programs.hpp>
#include <replicator/async/finished_processes.hpp>
#include <replicator/async/shard_call.hpp>
#include <replicator/async/shard_listener.hpp>
#include <replicator/async/shard_lookup.hpp>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/devices/thread_without_signals.hpp>
#include <replicator/job/job.hpp>
#include <replicator/transport/messenger.hpp>

namespace replicator::detail {

// Never blocks on one client: it retries an update that waits for the staleness bound after each change. It serves
// until all processes of the job have left.
//
// A client is a device of a process. Its messages, in order:
//   client:  call -> [payload ->] [held ->] answer -> call ...
class ShardServer {
 public:
  // All arguments except the messenger outlive this object.
  ShardServer(std::unique_ptr<transport::Messenger> messenger, const transport::Job& job, AsyncPrograms& programs, const ShardRanks& ranks,
              StopAgreement& stop, ShardListener& listener)
      : programs_{programs}, ranks_{ranks}, stop_{stop}, listener_{listener}, lookup_{job, programs, ranks}, finished_{job, ranks.processes()}, messenger_{std::move(messenger)} {
    for (const int rank : ranks.clients()) clients_.push_back(std::make_unique<Client>(rank));
    thread_ = thread_without_signals([this] { serve(); });
  }
  ShardServer(const ShardServer&) = delete;
  ShardServer& operator=(const ShardServer&) = delete;
  // Returns when all clients have left, or when the job has been aborted.
  ~ShardServer() { thread_.join(); }

  // The processes of the job whose groups make no more steps.
  const FinishedProcesses& finished() const { return finished_; }

 private:
  using Clock = transport::Clock;
  enum class State {
    call,
    payload,
    held,
    answer,
    left
  };
  struct Client {
    explicit Client(int its_rank) : rank{its_rank} {}
    int rank;
    State state = State::answer;  // no message is pending, so a call comes next
    ShardCall call;
    std::vector<transport::Ticket> under_way;
    std::vector<AnyArray> gradients;  // by ordinal
    std::vector<std::byte> bytes;     // of an answer or a report
    DeadlineWait held{{}};
    bool finished = false;  // its groups make no more steps
  };

  void serve() {
    const cpu::KernelEnvironment environment{programs_.deployment().threads_per_device};
    try {
      while (!all_left()) {
        messenger_->wait([this] { return advance_all(); }, fail_late());
      }
    } catch (...) {
      listener_.fail(std::current_exception());
      finished_.fail();
    }
  }
  bool all_left() const {
    return std::all_of(clients_.begin(), clients_.end(), [](const auto& client) { return client->state == State::left; });
  }
  bool advance_all() {
    bool moved = false;
    for (const auto& client : clients_) moved = advance(*client) || moved;
    return moved;
  }
  // Returns true if the client changed its state.
  bool advance(Client& client) {
    auto& tickets = client.under_way;
    while (!tickets.empty() && messenger_->done(tickets.back())) tickets.pop_back();
    if (!tickets.empty() || client.state == State::left) return false;
    switch (client.state) {
      case State::call: begin(client); return true;
      case State::payload: take(client); return true;
      case State::held: return try_update(client);
      default: await_call(client); return true;
    }
  }
  void await_call(Client& client) {
    client.state = State::call;
    receive(client, std::as_writable_bytes(std::span{&client.call, 1}), slots::call);
  }
  void receive(Client& client, std::span<std::byte> bytes, transport::Slot slot) {
    client.under_way.push_back(messenger_->recv(bytes, client.rank, slot));
  }

  // Called after a call has arrived.
  void begin(Client& client) {
    const auto& call = client.call;
    lookup_.require_possible(call, client.rank, client.finished);
    switch (call.kind) {
      case ShardCall::Kind::read: return answer(client, lookup_.names_of(call));
      case ShardCall::Kind::value: return answer(client, {lookup_.variable_of(call)});
      case ShardCall::Kind::update: return await_gradients(client);
      case ShardCall::Kind::report: return await_report(client);
      case ShardCall::Kind::look: return await_call(client);
      case ShardCall::Kind::vote: return answer_vote(client);
      case ShardCall::Kind::stop: return hear_stop(client);
      case ShardCall::Kind::pause: return hear_pause(client);
      case ShardCall::Kind::finished: return hear_finished(client);
      case ShardCall::Kind::leave: client.state = State::left; return;
    }
    throw lookup_.refusal(client.rank, "a call that no server knows");
  }
  // Copies the values between two updates, then sends the copy.
  void answer(Client& client, const std::vector<std::string>& names) {
    std::size_t total = 0;
    for (const auto& name : names) total += programs_.bytes_of(name).size();
    client.bytes.resize(total);
    lookup_.shard_of(client.call).gate->read(client.call.group, [&] {
      std::size_t at = 0;
      for (const auto& name : names) {
        const auto bytes = programs_.bytes_of(name);
        if (!bytes.empty()) std::memcpy(client.bytes.data() + at, bytes.data(), bytes.size());
        at += bytes.size();
      }
    });
    client.state = State::answer;
    std::size_t at = 0;
    for (const auto& name : names) {
      const auto size = programs_.bytes_of(name).size();
      client.under_way.push_back(messenger_->send(std::span{client.bytes}.subspan(at, size), client.rank, slots::answer));
      at += size;
    }
  }
  void await_gradients(Client& client) {
    client.state = State::payload;
    for (const auto& [ordinal, type] : lookup_.shard_of(client.call).gradients) {
      if (client.gradients.size() <= ordinal) client.gradients.resize(ordinal + 1);
      auto& gradient = client.gradients[ordinal];
      if (gradient.type() != type || gradient.data() == nullptr) gradient = AnyArray{type};
      receive(client, {gradient.data(), gradient.size_bytes()}, slots::payload);
    }
  }
  void await_report(Client& client) {
    client.state = State::payload;
    client.bytes.resize(programs_.results().bytes());
    receive(client, client.bytes, slots::payload);
  }
  // Called after the payload of a call has arrived.
  void take(Client& client) {
    if (client.call.kind == ShardCall::Kind::report) {
      listener_.hear(client.call, client.bytes);
      return await_call(client);
    }
    client.held = DeadlineWait{{.deadline = programs_.deployment().deadline}};
    client.state = State::held;
    try_update(client);
  }
  bool try_update(Client& client) {
    auto& shard = lookup_.shard_of(client.call);
    if (!shard.gate->try_update(client.call.group, [&](std::int64_t before) { programs_.update(shard, client.gradients, before); })) return false;
    send_answer(client, std::as_bytes(std::span{"", 1}));
    return true;
  }
  void send_answer(Client& client, std::span<const std::byte> bytes) {
    client.state = State::answer;
    client.bytes.assign(bytes.begin(), bytes.end());
    client.under_way.push_back(messenger_->send(client.bytes, client.rank, slots::answer));
  }
  // Throws if a client has waited for the bound until the deadline. Returns the next deadline of a waiting client.
  Clock::time_point fail_late() const {
    auto next = Clock::time_point::max();
    for (const auto& client : clients_) {
      if (client->state != State::held) continue;
      if (client->held.is_over(Clock::now())) lookup_.shard_of(client->call).gate->fail_held(client->call.group);
      next = std::min(next, client->held.deadline());
    }
    return next;
  }

  // --- the end -------------------------------------------------------------------------------------------------------------------
  void answer_vote(Client& client) {
    const auto vote = stop_.vote(ranks_.process_of(client.rank));
    send_answer(client, std::as_bytes(std::span{&vote, 1}));
  }
  void hear_stop(Client& client) {
    if (!stop_.agree(client.call.agreed)) throw lookup_.refusal(client.rank, "a call to stop that does not fit the votes");
    await_call(client);
  }
  void hear_pause(Client& client) {
    listener_.hear_pause(ranks_.process_of(client.rank), client.call.steps, client.call.barriers);
    await_call(client);
  }
  void hear_finished(Client& client) {
    client.finished = true;
    const int process = ranks_.process_of(client.rank);
    const auto of_process = [&](const auto& other) { return other->finished || ranks_.process_of(other->rank) != process; };
    if (std::all_of(clients_.begin(), clients_.end(), of_process)) {
      listener_.hear_left(process);
      finished_.add(process);
    }
    await_call(client);
  }
  AsyncPrograms& programs_;
  const ShardRanks& ranks_;
  StopAgreement& stop_;
  ShardListener& listener_;
  ShardLookup lookup_;
  FinishedProcesses finished_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unique_ptr<transport::Messenger> messenger_;  // declared after the buffers of its messages, so that it is destroyed first
  std::thread thread_;
};

}  // namespace replicator::detail
