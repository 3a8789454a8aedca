// SPDX-License-Identifier: Apache-2.0
// AsyncPeers: this process's connections to the others in the asynchronous regime: a shard client for each device, and
// one shard server.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/async_programs.hpp>
#include <replicator/async/running_steps.hpp>
#include <replicator/async/shard_client.hpp>
#include <replicator/async/shard_server.hpp>
#include <replicator/collectives/connect/host_transport.hpp>
#include <replicator/engine/host.hpp>

namespace replicator::detail {

class AsyncPeers {
 public:
  // Collective: every process of the job calls it. All arguments outlive this object.
  AsyncPeers(Host& host, AsyncPrograms& programs, StopAgreement& stop, const RunningSteps& running, int ordinal)
      : host_{host}, programs_{programs}, stop_{stop}, running_steps_{running}, ordinal_{ordinal}, ranks_{programs.placement()} {
    auto messengers = collectives::connect_messengers(host.deployment().transport, host.job(), ranks_.process_of_rank());
    for_server_ = std::move(messengers.back());
    messengers.pop_back();
    for (auto& messenger : messengers)
      clients_.push_back(std::make_unique<ShardClient>(std::move(messenger), host.job(), host.deployment(), programs.placement(), ranks_));
  }
  ShardClient& client(int device) const { return *clients_[static_cast<std::size_t>(device)]; }
  // Starts the server: other processes may call it from now on. `listener` outlives it.
  void serve(ShardListener& listener) {
    server_ = std::make_unique<ShardServer>(std::move(for_server_), host_.job(), programs_, ranks_, stop_, listener);
  }

  // --- for the program's thread, while the devices of this process rest -----------------------------------------------------------
  // Copies the newest value of the variable from its shard. Returns false if no shard has the variable.
  bool fetch(const std::string& variable, AnyArray& into) const {
    const auto& shards = programs_.shards();
    for (std::size_t s = 0; s < shards.size(); ++s) {
      const auto& names = shards[s]->variables;
      const auto found = std::find(names.begin(), names.end(), variable);
      if (found == names.end()) continue;
      if (into.empty()) into = AnyArray{host_.variables().declaration(variable).type};  // else keeps the array: the program may hold a reference to it
      const auto from = programs_.bytes_of(variable);
      if (!shards[s]->gate) ask_value(s, static_cast<std::size_t>(found - names.begin()), {into.data(), into.size_bytes()});
      else if (!from.empty()) shards[s]->gate->read(-1, [&] { std::memcpy(into.data(), from.data(), from.size()); });
      return true;
    }
    return false;
  }
  // Barrier. Every process calls it while its devices rest. `why` must be the same on all, or an error names the
  // difference. `newest`: the shards of this step have the newest values, and all processes fetch them.
  void meet(bool newest, const char* why) {
    host_.job().barrier(std::string{"replicas at rest: "} + why);
    if (!newest) return;
    fetch_all();
    host_.job().barrier("variables brought to all processes");
  }
  // After this process has caught a signal: makes all processes agree on the call of step() after which they stop.
  void agree_on_stop() const {
    if (!stop_.is_due()) return;
    auto agreed = stop_.vote(host_.job().rank());
    for (int p = 0; p < host_.job().size(); ++p)
      if (p != host_.job().rank()) agreed = StopAgreement::both(agreed, client(0).vote(p));
    client(0).stop(agreed);
    stop_.agree(agreed);
  }
  // Another step has newer values, so part() does not fetch those of this step.
  void leave_variables() { takes_last_ = false; }
  // True if the process makes no more steps.
  bool has_left(int process) const { return server_->finished().contains(process); }
  // Called at the end, when the devices of this process make no more steps. Waits until all processes have finished,
  // fetches the last values, and tells the servers that no more calls come. Throws CommunicationError if the job is
  // aborted, or if another process waits for this one at the end of another step.
  void part() {
    agree_on_stop();
    for (const auto& client : clients_) client->tell_all(ShardCall::Kind::finished);
    server_->finished().await_all(host_.deployment().late, [this](int process) { require_same_order(process); });
    if (takes_last_) fetch_all();
    for (const auto& client : clients_) client->tell_all(ShardCall::Kind::leave);
  }
  // Returns when all processes have parted, or when the job has been aborted.
  void stop_serving() { server_.reset(); }

 private:
  void require_same_order(int process) const {
    const auto left = running_steps_.left_by(process);
    if (!left) return;
    const auto& job = host_.job();
    throw CommunicationError{job.describe(process) + " waits at the end of step " + std::to_string(*left) + " of the Replicator for " +
                                 job.describe(job.rank()) + ", which waits for it at the end of step " + std::to_string(ordinal_) +
                                 ": steps must be destroyed in the same order on every process",
                             process};
  }
  void ask_value(std::size_t shard, std::size_t variable, std::span<std::byte> into) const {
    client(0).value(programs_.shards()[shard]->owner, shard, variable, into);
  }
  void fetch_all() const {
    const auto& shards = programs_.shards();
    for (std::size_t s = 0; s < shards.size(); ++s)
      for (std::size_t v = 0; !shards[s]->gate && v < shards[s]->variables.size(); ++v) ask_value(s, v, programs_.bytes_of(shards[s]->variables[v]));
  }

  Host& host_;
  AsyncPrograms& programs_;
  StopAgreement& stop_;
  const RunningSteps& running_steps_;
  int ordinal_;
  ShardRanks ranks_;
  std::vector<std::unique_ptr<ShardClient>> clients_;  // by device
  std::unique_ptr<transport::Messenger> for_server_;   // until it serves
  std::unique_ptr<ShardServer> server_;
  bool takes_last_ = true;
};

}  // namespace replicator::detail
