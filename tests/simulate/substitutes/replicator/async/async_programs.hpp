// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: a step whose groups and shards are made up. Each variable is a
// counter of updates and a digest of them, so that every reader can see what it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/async_placement.hpp>
#include <replicator/async/async_results.hpp>
#include <replicator/async/shard.hpp>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/runtime/execution_options.hpp>

#include "../../../shard_oracle.hpp"

namespace replicator::detail {

struct AsyncMember {
  int device = 0, first = 0, count = 1;
  Program program{};
};

struct AsyncGroup {
  struct Wire {
    void abort(const CommunicationError&) {}  // each group has one device
  };
  int index = 0;
  Wire wire;
  std::vector<AsyncMember> members{};
  std::vector<AnyArray> means{};
};

struct AsyncShard {
  std::vector<std::string> variables{};
  std::vector<std::pair<std::uint32_t, TensorType>> gradients{};
  int owner = 0, index = 0;
  std::unique_ptr<Shard> gate{};
};

class AsyncPrograms {
 public:
  static constexpr int variables_of_shard = 2;
  static TensorType type() { return {DType::int64, Shape{4}}; }

  // `owners`: of the shards.
  AsyncPrograms(const Deployment& deployment, AsyncPlacement placement, const std::vector<int>& owners, simulate::ShardOracle& oracle)
      : deployment_{deployment}, placement_{std::move(placement)}, oracle_{oracle}, results_{{TensorType{DType::int64, Shape{1}}}, placement_.replicas_of_group()}, copies_{*this} {
    for (std::size_t s = 0; s < owners.size(); ++s) {
      auto& shard = *shards_.emplace_back(std::make_unique<AsyncShard>());
      shard.owner = owners[s];
      shard.index = static_cast<int>(s);
      shard.gradients.emplace_back(static_cast<std::uint32_t>(s), type());
      for (int v = 0; v < variables_of_shard; ++v) {
        shard.variables.push_back("s" + std::to_string(s) + "v" + std::to_string(v));
        for (int copy = 0; copy <= placement_.devices(); ++copy) std::memset((values_[shard.variables.back()].emplace_back(type())).data(), 0, 32);
      }
      if (shard.owner == placement_.process()) shard.gate = std::make_unique<Shard>(placement_.groups(), deployment_.staleness, waiting());
    }
    for (int g = 0; g < placement_.groups_here(); ++g) {
      auto& group = *groups_.emplace_back(std::make_unique<AsyncGroup>());
      group.index = placement_.first_group() + g;
      for (std::size_t s = 0; s < owners.size(); ++s) group.means.emplace_back(type());
      auto& member = group.members.emplace_back();
      member.device = placement_.first_device(group.index);
      member.first = placement_.first_replica(group.index);
      member.program.results = {{AnyArray{TensorType{DType::int64, Shape{1}}}}};
      member.program.uniform_result = {true};
      member.program.work = [this, &group, &member](std::uint64_t step) { compute(group, member, step); };
    }
  }
  AsyncPrograms(const AsyncPrograms&) = delete;
  AsyncPrograms& operator=(const AsyncPrograms&) = delete;

  const Deployment& deployment() const { return deployment_; }
  const AsyncPlacement& placement() const { return placement_; }
  std::uint64_t seed() const { return 0; }
  const AsyncResults& results() const { return results_; }
  std::vector<std::unique_ptr<AsyncGroup>>& groups() { return groups_; }
  std::vector<std::unique_ptr<AsyncShard>>& shards() { return shards_; }

  class Copies {
   public:
    explicit Copies(AsyncPrograms& programs) : programs_{programs} {}
    const std::vector<std::string>& names(std::size_t shard) const { return programs_.shards_[shard]->variables; }
    void pull(std::size_t shard, int device) const {
      for (const auto& name : names(shard)) {
        const auto from = programs_.bytes_of(name);
        std::memcpy(programs_.copy(name, device + 1).data(), from.data(), from.size());
      }
    }
    std::vector<std::span<std::byte>> values_at(std::size_t shard, int device) const {
      std::vector<std::span<std::byte>> values;
      for (const auto& name : names(shard)) values.emplace_back(programs_.copy(name, device + 1).data(), type().bytes());
      return values;
    }

   private:
    AsyncPrograms& programs_;
  };
  const Copies& copies() const { return copies_; }

  // The memory of copy 0. Another thread may run before it is used.
  std::span<std::byte> bytes_of(const std::string& variable) const {
    simulate::let_others_run();
    auto& array = values_.at(variable)[0];
    return {array.data(), array.size_bytes()};
  }
  // A gradient holds the group, its step, and the number of updates in the values that it was computed from.
  void update(AsyncShard& shard, const std::vector<AnyArray>& gradients, std::int64_t before) const {
    std::int64_t gradient[4];
    std::memcpy(gradient, gradients[static_cast<std::size_t>(shard.index)].data(), sizeof gradient);
    oracle_.updates(shard.index, gradient[0], gradient[1], gradient[2], before);
    for (const auto& name : shard.variables) {
      std::int64_t value[4];
      const auto bytes = bytes_of(name);
      std::memcpy(value, bytes.data(), sizeof value);
      value[0] += 1;
      value[1] = static_cast<std::int64_t>(simulate::mixed_bits(static_cast<std::uint64_t>(value[1]), static_cast<std::uint64_t>(gradient[0] * 1000 + gradient[1])));
      simulate::let_others_run();
      std::memcpy(bytes.data(), value, sizeof value);
    }
  }
  // The values of copy 0 of all variables.
  std::vector<std::int64_t> all_values() const {
    std::vector<std::int64_t> result;
    for (const auto& [name, copies] : values_) {
      const auto* const first = reinterpret_cast<const std::int64_t*>(copies[0].data());
      result.insert(result.end(), first, first + 4);
    }
    return result;
  }

 private:
  AnyArray& copy(const std::string& name, int index) { return values_.at(name)[static_cast<std::size_t>(index)]; }

  void compute(AsyncGroup& group, AsyncMember& member, std::uint64_t step) {
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      std::int64_t first[4], other[4];
      const auto& names = shards_[s]->variables;
      std::memcpy(first, copy(names[0], member.device + 1).data(), sizeof first);
      std::memcpy(other, copy(names[1], member.device + 1).data(), sizeof other);
      oracle_.reads(static_cast<int>(s), group.index, first, other);
      const std::int64_t gradient[4] = {group.index, static_cast<std::int64_t>(step), first[0], 0};
      std::memcpy(group.means[s].data(), gradient, sizeof gradient);
    }
    simulate::pass_time_of_a_step(group.index);
    const auto number = static_cast<std::int64_t>(step);
    std::memcpy(member.program.results[0][0].data(), &number, sizeof number);
  }
  Shard::Waiting waiting() const {
    return {{deployment_.deadline, deployment_.late}, [](int, const Shard::Held&) {}, [placement = placement_](int group, const Shard::Held& held) { throw CommunicationError{"group " + std::to_string(group) + " waited until the deadline for group " + std::to_string(held.holder),
                                                                                                                                                                              held.holder < 0 ? placement.process() : placement.process_of(held.holder)}; }};
  }

  const Deployment& deployment_;
  AsyncPlacement placement_;
  simulate::ShardOracle& oracle_;
  AsyncResults results_;
  mutable std::map<std::string, std::vector<AnyArray>> values_;  // by variable: copy 0, then one for each device
  std::vector<std::unique_ptr<AsyncGroup>> groups_;
  std::vector<std::unique_ptr<AsyncShard>> shards_;
  Copies copies_;
};

}  // namespace replicator::detail
