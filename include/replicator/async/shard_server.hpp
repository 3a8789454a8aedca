// SPDX-License-Identifier: Apache-2.0
// The thread of a process that answers the groups of the job: it reads and updates this process's shards for them.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/async/async_programs.hpp>
#include <replicator/async/shard_call.hpp>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/devices/thread_without_signals.hpp>
#include <replicator/job/job.hpp>
#include <replicator/transport/messenger.hpp>

namespace replicator {

// What it hears beside the calls at shards. In the server's thread.
class ShardListener {
 public:
  // A group of another process, one that it has, made a step; `results` as AsyncResults::pack.
  virtual void hear(const ShardCall& report, std::span<const std::byte> results) = 0;
  // No group of the process makes a further step; all that they made were heard of.
  virtual void hear_left(int process) = 0;
  // None makes one until all processes have met once more than `meetings`; `steps` have they made together.
  virtual void hear_pause(int process, std::uint64_t steps, std::uint64_t meetings) = 0;
  // The server has stopped.
  virtual void fail(const std::exception_ptr& error) = 0;

 protected:
  ~ShardListener() = default;
};

// Never waits for one of those it serves: who is held up by a bound of staleness is asked about again whenever something has changed. It serves
// until all of the job have left.
//
//   client:  call -> [payload ->] [held ->] answer -> call ...
class ShardServer {
 public:
  // All but the messenger outlive this.
  ShardServer(std::unique_ptr<transport::Messenger> messenger, const transport::Job& job, AsyncPrograms& programs, const ShardRanks& ranks,
              StopAgreement& stop, ShardListener& listener)
      : job_{job}, programs_{programs}, ranks_{ranks}, stop_{stop}, listener_{listener}, messenger_{std::move(messenger)} {
    for (const int rank : ranks.clients()) clients_.push_back(std::make_unique<Client>(rank));
    thread_ = thread_without_signals([this] { serve(); });
  }
  ShardServer(const ShardServer&) = delete;
  ShardServer& operator=(const ShardServer&) = delete;
  // Returns when all have left, or the job has been aborted.
  ~ShardServer() { thread_.join(); }

  // Until no group of the job makes a further step, however long: its processes are alive, or the job is aborted. After `late` a line on stderr
  // names those that are awaited. Each of them is looked at now and then; what `look` throws ends the wait.
  void await_all_finished(std::chrono::milliseconds late, const std::function<void(int process)>& look) {
    DeadlineWait wait{{.late = late}};
    std::unique_lock lock{mutex_};
    while (!changed_.wait_for(lock, std::chrono::milliseconds{100}, [this] { return failed_ || unfinished().empty(); })) {
      const auto awaited = unfinished();
      lock.unlock();
      for (const int process : awaited) look(process);
      if (wait.becomes_late(Clock::now())) tell_awaited(awaited);
      lock.lock();
    }
  }
  // Its groups make no further step.
  bool has_finished(int process) const {
    const std::lock_guard lock{mutex_};
    return finished_.contains(process);
  }

 private:
  using Clock = transport::Clock;
  enum class State { call, payload, held, answer, left };
  struct Client {
    explicit Client(int its_rank) : rank{its_rank} {}
    int rank;
    State state = State::answer;  // nothing is under way: the next is a call
    ShardCall call;
    std::vector<transport::Ticket> under_way;
    std::vector<AnyArray> gradients;  // by ordinal
    std::vector<std::byte> bytes;     // of an answer, or a report
    DeadlineWait held{{}};
    bool finished = false;  // it has said so
  };

  void serve() {
    const cpu::KernelEnvironment environment{programs_.deployment().threads_per_device};
    try {
      while (!all_left()) {
        messenger_->wait([this] { return advance_all(); }, fail_late());
      }
    } catch (...) {
      listener_.fail(std::current_exception());
      {
        const std::lock_guard lock{mutex_};
        failed_ = true;
      }
      changed_.notify_all();
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
  // True where it went on to another state.
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

  // A call has come.
  void begin(Client& client) {
    const auto& call = client.call;
    require_possible(client);
    switch (call.kind) {
      case ShardCall::Kind::read: return answer(client, names_of(call));
      case ShardCall::Kind::value: return answer(client, {variable_of(call)});
      case ShardCall::Kind::update: return await_gradients(client);
      case ShardCall::Kind::report: return await_report(client);
      case ShardCall::Kind::look: return await_call(client);
      case ShardCall::Kind::vote: return answer_vote(client);
      case ShardCall::Kind::stop: return hear_stop(client);
      case ShardCall::Kind::pause: return hear_pause(client);
      case ShardCall::Kind::finished: return hear_finished(client);
      case ShardCall::Kind::leave: client.state = State::left; return;
    }
    throw refusal(client, "a call that no server knows");
  }
  // It acts for groups of its own process only, while they make steps. Whether there is what it asks for, shard_of and variable_of find.
  void require_possible(const Client& client) const {
    const bool acts = client.call.kind == ShardCall::Kind::read || client.call.kind == ShardCall::Kind::update || client.call.kind == ShardCall::Kind::report;
    if (client.finished && (acts || client.call.kind == ShardCall::Kind::finished)) throw refusal(client, "a call of a step behind its last one");
    if (!acts) return;
    const auto& placement = programs_.placement();
    const int group = client.call.group;
    if (group < 0 || group >= placement.groups() || placement.process_of(group) != ranks_.process_of(client.rank))
      throw refusal(client, "a call for group " + std::to_string(group) + ", which it does not have");
  }
  CommunicationError refusal(const Client& client, const std::string& call) const {
    const int process = ranks_.process_of(client.rank);
    return {job_.describe(process) + " makes " + call, process};
  }
  AsyncShard& shard_of(const ShardCall& call) const {
    auto& shards = programs_.shards();
    if (call.shard >= shards.size() || !shards[call.shard]->gate)
      throw CommunicationError{"shard " + std::to_string(call.shard) + " was asked for at " + job_.describe(job_.rank()) + ", which does not have it", -1};
    return *shards[call.shard];
  }
  const std::vector<std::string>& names_of(const ShardCall& call) const {
    shard_of(call);
    return programs_.copies().names(call.shard);
  }
  const std::string& variable_of(const ShardCall& call) const {
    const auto& variables = shard_of(call).variables;
    if (call.variable < variables.size()) return variables[call.variable];
    throw CommunicationError{"variable " + std::to_string(call.variable) + " of shard " + std::to_string(call.shard) + " was asked for at " +
                                 job_.describe(job_.rank()) + ": it has " + std::to_string(variables.size()), -1};
  }
  // The values of one moment.
  void answer(Client& client, const std::vector<std::string>& names) {
    std::size_t total = 0;
    for (const auto& name : names) total += programs_.bytes_of(name).size();
    client.bytes.resize(total);
    shard_of(client.call).gate->read(client.call.group, [&] {
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
    for (const auto& [ordinal, type] : shard_of(client.call).gradients) {
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
  // What belongs to the call has come.
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
    auto& shard = shard_of(client.call);
    if (!shard.gate->try_update(client.call.group, [&](std::int64_t before) { programs_.update(shard, client.gradients, before); })) return false;
    send_answer(client, std::as_bytes(std::span{"", 1}));
    return true;
  }
  void send_answer(Client& client, std::span<const std::byte> bytes) {
    client.state = State::answer;
    client.bytes.assign(bytes.begin(), bytes.end());
    client.under_way.push_back(messenger_->send(client.bytes, client.rank, slots::answer));
  }
  // Throws for who has been held up until the deadline. Returns when that will next be.
  Clock::time_point fail_late() const {
    auto next = Clock::time_point::max();
    for (const auto& client : clients_) {
      if (client->state != State::held) continue;
      if (client->held.is_over(Clock::now())) shard_of(client->call).gate->fail_held(client->call.group);
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
    if (!stop_.agree(client.call.agreed)) throw refusal(client, "a call to stop, before or without what was agreed");
    await_call(client);
  }
  void hear_pause(Client& client) {
    listener_.hear_pause(ranks_.process_of(client.rank), client.call.steps, client.call.meetings);
    await_call(client);
  }
  void hear_finished(Client& client) {
    client.finished = true;
    const int process = ranks_.process_of(client.rank);
    const auto of_process = [&](const auto& other) { return other->finished || ranks_.process_of(other->rank) != process; };
    if (std::all_of(clients_.begin(), clients_.end(), of_process)) count_finished(process);
    await_call(client);
  }
  void count_finished(int process) {
    listener_.hear_left(process);
    {
      const std::lock_guard lock{mutex_};
      finished_.insert(process);
    }
    changed_.notify_all();
  }
  // Locked.
  std::vector<int> unfinished() const {
    std::vector<int> processes;
    for (int p = 0; p < ranks_.processes(); ++p)
      if (!finished_.contains(p)) processes.push_back(p);
    return processes;
  }
  void tell_awaited(const std::vector<int>& processes) const {
    std::string text;
    for (const int process : processes) text += (text.empty() ? "" : ", ") + job_.describe(process);
    std::fprintf(stderr, "replicator: %s has made its steps, and waits for %s, alive, to make theirs\n", job_.describe(job_.rank()).c_str(), text.c_str());
  }

  const transport::Job& job_;
  AsyncPrograms& programs_;
  const ShardRanks& ranks_;
  StopAgreement& stop_;
  ShardListener& listener_;
  std::vector<std::unique_ptr<Client>> clients_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::set<int> finished_;  // processes
  bool failed_ = false;
  std::unique_ptr<transport::Messenger> messenger_;  // behind the memory that it is given
  std::thread thread_;
};

}  // namespace replicator
