// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <replicator/data/worker_threads.hpp>
#include <replicator/devices/usable_cores.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace test_worker_pool {

using replicator::data::WorkerPool;

TEST_CASE("a worker pool does every item once, for several callers at a time") {
  WorkerPool pool{3};
  std::vector<std::vector<int>> counts(4, std::vector<int>(500, 0));
  std::atomic<bool> worker_in_range = true;
  std::vector<std::thread> callers;
  for (auto& count : counts)
    callers.emplace_back([&] {
      for (int round = 0; round < 3; ++round)
        pool.for_each(500, [&](std::int64_t i, int worker) {
          if (worker < 0 || worker >= 3) worker_in_range = false;
          ++count[static_cast<std::size_t>(i)];
        });
    });
  for (auto& caller : callers) caller.join();
  CHECK(worker_in_range);
  for (const auto& count : counts) CHECK(count == std::vector<int>(500, 3));
}

TEST_CASE("a worker pool reports the failure of the lowest item, whatever the timing") {
  WorkerPool pool{4};
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> done = 0;
    std::string message;
    try {
      pool.for_each(40, [&](std::int64_t i, int) {
        ++done;
        if (i == 7) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (i >= 7) throw std::runtime_error{std::to_string(i)};
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    CHECK(message == "7");
    CHECK(done == 40);
  }
  int after = 0;
  pool.for_each(1, [&](std::int64_t, int) { ++after; });
  CHECK(after == 1);
}

TEST_CASE("a worker pool has as many threads as the machine has cores unless told otherwise") {
  CHECK(WorkerPool{}.threads() == replicator::detail::usable_cores());
  CHECK(WorkerPool{5}.threads() == 5);
}

}  // namespace test_worker_pool
