// SPDX-License-Identifier: Apache-2.0
// Processes that claim the same epoch at once, for the tests of all arbiters.
#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <replicator/job/survivors.hpp>
#include <string>
#include <vector>

#include "../support/processes.hpp"

namespace replicator::test {

// Four processes claim each of these epochs. Each one goes to a single process, and all read the same name.
// `arbiter`: makes the arbiter of a process.
inline void check_claims_at_once(std::uint64_t epochs, const std::function<replicator::detail::transport::detail::Arbiter()>& arbiter) {
  using namespace replicator::detail::transport::detail;
  constexpr int count = 4;
  for (std::uint64_t number = 1; number <= epochs; ++number) {
    const auto results = run_processes(count, [&](int rank) {
      Epoch epoch{number, std::vector<std::uint64_t>(count, Epoch::absent)};
      epoch.lives[static_cast<std::size_t>(rank)] = 0;
      const Claim wanted{epoch, "process " + std::to_string(rank)};
      const auto held = arbiter()(wanted, [] {});
      return held.by + (held == wanted ? ", which is this one" : "");
    });
    INFO(describe(results));
    int owners = 0;
    for (const auto& result : results) {
      CHECK(result.exit_code == 0);
      owners += result.text.ends_with("this one");
      CHECK(result.text.substr(0, 9) == results[0].text.substr(0, 9));
    }
    CHECK(owners == 1);
  }
}

}  // namespace replicator::test
