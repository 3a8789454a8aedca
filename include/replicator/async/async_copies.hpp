// SPDX-License-Identifier: Apache-2.0
// AsyncCopies: the devices' copies of the variables in the asynchronous regime. A pull refreshes them.
#pragma once

#include <cstddef>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <replicator/engine/collective_task.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

// Device d computes from copy d + 1 of the VariableStore. Copy 0 holds the newest values of the variables that this
// process owns.
class AsyncCopies {
 public:
  // Collective, as a part of `building`. `shards`: the variables of each shard. `read`: the variables that steps of
  // this process read. `variables` outlives this object.
  AsyncCopies(CollectiveTask& building, VariableStore& variables, int devices, const std::vector<std::vector<std::string>>& shards, std::set<std::string> read)
      : variables_{variables}, devices_{devices} {
    const auto by_job = read_by_job(building, shards, read);
    std::size_t at = 0;
    for (const auto& shard : shards) {
      std::vector<std::string> names;
      for (const auto& name : shard) {
        read.erase(name);
        if (by_job[at++] != std::byte{0}) names.push_back(name);
      }
      add(names);
    }
    add({read.begin(), read.end()});
  }

  // The shard's variables that a step of any process reads. Only these are pulled.
  const std::vector<std::string>& names(std::size_t shard) const { return names_[shard]; }
  // Copies the newest values of names(shard) to the device's copy.
  void pull(std::size_t shard, int device) const { copy(copies_[shard][static_cast<std::size_t>(device)]); }
  // Copies the variables that are in no shard to all devices.
  void pull_unchanging() const {
    for (const auto& device : copies_.back()) copy(device);
  }
  // The memory of the device's copy, in the order of names(shard).
  std::vector<std::span<std::byte>> values_at(std::size_t shard, int device) const {
    std::vector<std::span<std::byte>> values;
    for (const auto& each : copies_[shard][static_cast<std::size_t>(device)]) values.push_back({each.to, each.bytes});
    return values;
  }

 private:
  struct Copy {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  static void copy(const std::vector<Copy>& copies) {
    for (const auto& each : copies)
      if (each.bytes > 0) std::memcpy(each.to, each.from, each.bytes);
  }
  // For each variable of the shards, in order: not zero if any process reads it.
  static std::vector<std::byte> read_by_job(CollectiveTask& building, const std::vector<std::vector<std::string>>& shards, const std::set<std::string>& mine) {
    std::vector<std::byte> read;
    for (const auto& shard : shards)
      for (const auto& name : shard) read.push_back(std::byte{mine.contains(name)});
    static constexpr const char* what = "the exchange of the variables that steps read";
    const auto all = building.exchange(read);
    for (std::size_t p = 0; p < all.size(); ++p) {
      transport::require_contribution(all[p].size() == read.size(), static_cast<int>(p), all[p].size(), what);
      for (std::size_t i = 0; i < read.size(); ++i) read[i] |= all[p][i];
    }
    return read;
  }
  void add(const std::vector<std::string>& names) {
    auto& by_device = copies_.emplace_back();
    for (int device = 0; device < devices_; ++device) {
      auto& list = by_device.emplace_back();
      for (const auto& name : names)
        list.push_back({variables_.data(name, 0), variables_.data(name, device + 1), variables_.declaration(name).type.bytes()});
    }
    names_.push_back(names);
  }

  VariableStore& variables_;
  int devices_;
  std::vector<std::vector<std::string>> names_;         // by shard; the last entry is for variables without a shard
  std::vector<std::vector<std::vector<Copy>>> copies_;  // by shard as names_, then by device
};

}  // namespace replicator::detail
