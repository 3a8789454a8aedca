// SPDX-License-Identifier: Apache-2.0
// Collectives on raw values, through host memory and on devices, for bitwise comparison.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/runtime/queue.hpp>

#include "../collectives/ranks.hpp"

namespace replicator::test {

using namespace replicator::detail;

namespace cl = replicator::detail::collectives;

using Bytes = std::vector<std::byte>;

inline constexpr int steps = 3;

struct Asked {
  cl::CollectiveSpec spec;
  cl::Schedule schedule;
};

// A rank's input in a step.
inline Bytes given(const Asked& asked, int rank, int index, int step) {
  const auto n = asked.spec.elements * asked.schedule.input_blocks();
  Bytes bytes(static_cast<std::size_t>(n) * size_of(asked.spec.dtype));
  PhiloxStream random{static_cast<std::uint64_t>(rank * 100 + index), static_cast<std::uint64_t>(step), asked.spec.id};
  visit_dtype(asked.spec.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < n; ++i) {
      T value{};
      if constexpr (std::is_integral_v<T>) value = static_cast<T>(random.below(100));
      else value = static_cast<T>(random.uniform() - 0.5f);
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}
inline std::size_t output_bytes(const Asked& asked, int rank) {
  return static_cast<std::size_t>(asked.spec.elements * asked.schedule.output_blocks(rank)) * size_of(asked.spec.dtype);
}

// What each rank receives, [rank][collective][step], by way of the host's memory.
using Received = std::vector<std::vector<std::vector<Bytes>>>;
inline Received received_on_host(const std::vector<Asked>& all) {
  const auto& blocks = all[0].schedule.blocks;
  Received result(static_cast<std::size_t>(blocks.ranks()), std::vector<std::vector<Bytes>>(all.size()));
  rt::InProcessGroup group{blocks.ranks()};
  run_ranks(group, [&](int rank) {
    const auto communicator = cl::make_communicator(rt::InProcess{group, rank}, blocks);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const auto collective = communicator->prepare(all[k].spec, all[k].schedule);
      for (int step = 0; step < steps; ++step) {
        for (int index = 0; index < collective->inputs(); ++index) {
          const Bytes input = given(all[k], rank, index, step);
          std::copy(input.begin(), input.end(), collective->input(index));
        }
        collective->start();
        collective->wait(soon());
        result[static_cast<std::size_t>(rank)][k].emplace_back(collective->output(), collective->output() + output_bytes(all[k], rank));
      }
    }
  });
  return result;
}

// What one rank receives on its device, [collective][step]. All collectives are under way at once, begun in another order on every
// second rank, and nobody waits for a device before the last step.
inline std::vector<std::vector<Bytes>> received_on_device(const std::vector<Asked>& all, int rank, int index, const std::unique_ptr<cl::Communicator>& communicator) {
  std::vector<std::vector<Bytes>> result(all.size());
  const Queue queue{support_of(DeviceKind::cuda), index};
  std::vector<std::unique_ptr<cl::Collective>> collectives;
  for (const auto& asked : all) collectives.push_back(communicator->prepare(asked.spec, asked.schedule));
  std::vector<Bytes> inputs;
  inputs.reserve(1000);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t k = 0; k < all.size(); ++k) {
      const std::size_t at = rank % 2 ? all.size() - 1 - k : k;
      for (int input = 0; input < collectives[at]->inputs(); ++input) {
        inputs.push_back(given(all[at], rank, input, step));
        queue.copy(collectives[at]->input(input), inputs.back().data(), inputs.back().size());
      }
      collectives[at]->on_device()->start_behind(queue.handle());
    }
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (!collectives[k]->wait_until(soon(), [&] {
            for (auto& other : collectives) other->advance();
          }))
        throw Error{"it takes too long"};
      collectives[k]->on_device()->precede(queue.handle());
      auto& output = result[k].emplace_back(output_bytes(all[k], rank));
      queue.copy(output.data(), collectives[k]->output(), output.size());
    }
  }
  queue.synchronise();
  return result;
}
// The same for devices of these indices, by rank, whose communicators connect(rank) makes.
template <class Connect>
Received received_on_devices(const std::vector<Asked>& all, const std::vector<int>& indices, rt::InProcessGroup& group, Connect connect) {
  Received result(indices.size());
  run_ranks(group, [&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    result[place] = received_on_device(all, rank, indices[place], connect(rank));
  });
  return result;
}

inline cl::CollectiveSpec spec_of(cl::Kind kind, std::int64_t elements, std::uint32_t id) {
  cl::CollectiveSpec spec;
  spec.kind = kind;
  spec.elements = elements;
  spec.id = id;
  return spec;
}

// Of every kind, in groups too, of several element types.
inline std::vector<Asked> of_all_kinds(const cl::ReplicaBlocks& blocks, std::int64_t elements) {
  std::vector<Asked> all;
  const auto add = [&](cl::Kind kind, DType dtype, Reduction reduction, const Groups& groups, int root) {
    auto spec = spec_of(kind, elements, static_cast<std::uint32_t>(all.size()));
    spec.dtype = dtype;
    spec.reduction = reduction;
    spec.groups = groups;
    spec.root = root;
    const auto bytes = spec.elements * static_cast<std::int64_t>(size_of(dtype));
    all.push_back({spec, cl::choose(kind, bytes, blocks, root, false, {}, groups, rt::Latency::memory).schedule});
  };
  for (const auto& groups : {Groups{}, group_rows(blocks.replicas(), 2)}) {
    add(cl::Kind::all_reduce, DType::bfloat16, Reduction::mean, groups, 0);
    add(cl::Kind::all_reduce, DType::float64, Reduction::min, groups, 0);
    add(cl::Kind::reduce_scatter, DType::float32, Reduction::mean, groups, 0);
    add(cl::Kind::reduce_scatter, DType::int32, Reduction::max, groups, 0);
    add(cl::Kind::all_gather, DType::int64, Reduction::sum, groups, 0);
    add(cl::Kind::broadcast, DType::float32, Reduction::sum, groups, 1);
    add(cl::Kind::all_to_all, DType::uint8, Reduction::sum, groups, 0);
  }
  return all;
}

}  // namespace replicator::test
