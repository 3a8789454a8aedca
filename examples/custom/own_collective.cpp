// SPDX-License-Identifier: Apache-2.0
// A user-defined collective algorithm: recursive doubling, an all-reduce in log2 D steps. The checker proves it and
// finds a planted mistake, a simulation predicts its cost, and D threads run it: ./own_collective
#include <algorithm>
#include <chrono>
#include <iostream>
#include <replicator/core/philox.hpp>
#include <replicator/world/schedules.hpp>
#include <thread>
namespace rs = replicator::schedules;

//   step 0    0 <--> 1    2 <--> 3      each pair computes [0,2), [2,4)
//   step 1    0 <--> 2    1 <--> 3      all compute [0,4): T, so no bit depends on the placement
// D = 2^k ranks with a replica each. Steps: log2 D. Bytes per rank of n bytes: n log2 D. Thakur, Rabenseifner, Gropp, IJHPCA 2005.
rs::Schedule recursive_doubling(int steps) {
  const int ranks = 1 << steps;
  rs::Schedule schedule;
  schedule.name = "recursive_doubling";
  schedule.blocks = {ranks, ranks};
  schedule.groups = replicator::Groups{}.over(ranks);
  schedule.scratch.assign(static_cast<std::size_t>(ranks), steps - 1);  // a slot for what each step but the last one makes
  // What a rank has before step k: its input, or what it put into a slot.
  const auto before = [](int rank, int k) {
    return k == 0 ? rs::Operand{rs::Buffer::input, rank, 0, 0, 1} : rs::Operand{rs::Buffer::scratch, rank, k - 1, 0, 1};
  };
  for (int rank = 0; rank < ranks; ++rank) {
    rs::Channel channel;
    for (int k = 0; k < steps; ++k) {
      const int partner = rank ^ 1 << k;
      rs::Instruction reduce;
      reduce.action = rs::Action::reduce;
      reduce.left = before(std::min(rank, partner), k);  // left and right as in T
      reduce.right = before(std::max(rank, partner), k);
      reduce.root = k + 1 == steps;
      reduce.dst = reduce.root ? rs::Operand{rs::Buffer::output, rank, 0, 0, 1} : rs::Operand{rs::Buffer::scratch, rank, k, 0, 1};
      if (k > 0) reduce.after.push_back({partner, 0, k - 1});  // once the partner has it
      channel.push_back(reduce);
    }
    schedule.programs.push_back({channel});
  }
  return schedule;
}

// Runs the schedule with one thread per rank and returns the result of each rank.
std::vector<std::vector<float>> run(const rs::Schedule& schedule, std::int64_t elements) {
  rs::CollectiveSpec spec;
  spec.kind = rs::Kind::all_reduce;
  spec.elements = elements;
  rs::InProcessGroup group{schedule.ranks()};
  std::vector<std::vector<float>> results(static_cast<std::size_t>(schedule.ranks()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      const auto communicator = rs::make_communicator(rs::InProcess{group, rank}, schedule.blocks);
      const auto collective = communicator->prepare(spec, schedule);
      auto* input = reinterpret_cast<float*>(collective->input(0));
      replicator::PhiloxStream random{7, static_cast<std::uint64_t>(rank)};
      for (std::int64_t i = 0; i < elements; ++i) input[i] = random.uniform() - 0.5f;
      collective->start();
      collective->wait(rs::Clock::now() + std::chrono::seconds{20});
      const auto* output = reinterpret_cast<const float*>(collective->output());
      results[static_cast<std::size_t>(rank)].assign(output, output + elements);
    });
  threads.clear();  // joins
  return results;
}

int main() try {
  const rs::Schedule schedule = recursive_doubling(3);
  rs::check(schedule);  // for every number of elements: T, nothing undefined or raced, no deadlock
  std::cout << schedule.name << " on " << schedule.ranks() << " ranks is proved\n";

  rs::Schedule wrong = schedule;
  wrong.programs[5][0][2].after.clear();  // one dependency forgotten
  std::cout << "without one dependency: " << rs::find_fault(wrong) << '\n';

  rs::CollectiveSpec spec;
  spec.kind = rs::Kind::all_reduce;
  for (const std::int64_t elements : {std::int64_t{64}, std::int64_t{1} << 20}) {
    spec.elements = elements;
    const rs::Topology topology{{{8, {10, 10000}}}};  // 8 ranks, 10 us and 10 GB/s
    std::cout << elements << " floats, predicted: " << rs::simulate(schedule, spec, topology).time() << " us, direct "
              << rs::simulate(rs::direct(schedule.blocks), spec, topology).time() << " us\n";
  }
  const bool same = run(schedule, 1000) == run(rs::direct(schedule.blocks), 1000);
  std::cout << "the bits of the library's own: " << (same ? "yes" : "no") << '\n';
  return same && std::cout.flush() ? 0 : 1;
} catch (const replicator::Error& error) { return std::cerr << error.what() << '\n', 1; }
