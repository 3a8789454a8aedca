// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of --record and --replay.
#pragma once

#include <cstdint>
#include <string>

#include <replicator/data/generator.hpp>
#include <replicator/engine/replay/recording.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/replicate/replicator.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/programs.hpp"
#include "../support/told.hpp"
#include "deployments.hpp"

namespace replicator::test {

using namespace replicator::detail;

// Writes what the replica receives in the steps from `first` up to, not including `end`.
inline Deployment recording(Deployment where, int replica, std::uint64_t first, std::uint64_t end,
                            const std::string& file) {
  where.see.record = RecordOptions{replica, {first, end}, file};
  return where;
}

// A step that looks its own number up in a table of two: step 2 fails.
inline auto failing_step(Replicator& repl) {
  const auto numbers = [](const InputContext&) {
    return data::from_generator([](std::int64_t i) { return Array<std::int32_t>{{1}, {static_cast<std::int32_t>(i)}}; });
  };
  return repl.replicate(numbers, [](ReplicaContext& replica, Tensor<std::int32_t> i) {
    return gather(full<float>(replica, {2}, 1), i);
  });
}

}  // namespace replicator::test
