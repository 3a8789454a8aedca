// SPDX-License-Identifier: Apache-2.0
// Time of an all-reduce of float32 between threads of one process: size, microseconds (median), GB/s of payload.
//
//   allreduce [ranks = 2] [largest bytes = 64 MiB]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <replicator/collectives/cost.hpp>
#include <replicator/collectives/run.hpp>
#include <replicator/transport/in_process.hpp>
#include <thread>
#include <vector>

namespace rc = replicator::collectives;
namespace rt = replicator::transport;

namespace {

// Medians over `samples` of the time of one all-reduce, `repeat` of which are timed together.
void run_rank(rc::Communicator& communicator, const rc::CollectiveSpec& spec, const rc::Schedule& schedule, int samples,
              int repeat, double& microseconds) {
  const auto collective = communicator.prepare(spec, schedule);
  for (std::int64_t i = 0; i < spec.elements; ++i) reinterpret_cast<float*>(collective->input(0))[i] = 1;
  std::vector<double> times;
  for (int sample = 0; sample < samples; ++sample) {
    const auto begin = rt::Clock::now();
    for (int i = 0; i < repeat; ++i) {
      collective->start();
      collective->wait(begin + std::chrono::seconds{60});
    }
    times.push_back(std::chrono::duration<double, std::micro>(rt::Clock::now() - begin).count() / repeat);
  }
  std::sort(times.begin(), times.end());
  microseconds = times[times.size() / 2];
}

double measure(int ranks, std::int64_t bytes) {
  const rc::Choice choice = rc::choose_all_reduce(bytes, ranks, ranks, false);
  rc::CollectiveSpec spec;
  spec.elements = bytes / 4;
  const int repeat = static_cast<int>(std::clamp<std::int64_t>((1 << 22) / bytes, 1, 1000));
  const int samples = bytes > (1 << 24) ? 9 : 101;
  rt::InProcessGroup group{ranks};
  std::vector<double> microseconds(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto communicator = rc::make_communicator(rt::InProcess{group, rank}, {ranks, ranks});
      run_rank(*communicator, spec, choice.schedule, samples, repeat, microseconds[static_cast<std::size_t>(rank)]);
    });
  for (auto& thread : threads) thread.join();
  return *std::max_element(microseconds.begin(), microseconds.end());
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::int64_t largest = argc > 2 ? std::atoll(argv[2]) : std::int64_t{64} << 20;
  std::printf("%d ranks, in process\n%12s %12s %10s\n", ranks, "bytes", "us", "GB/s");
  for (std::int64_t bytes = 64; bytes <= largest; bytes *= 4) {
    const double us = measure(ranks, bytes);
    std::printf("%12lld %12.2f %10.2f\n", static_cast<long long>(bytes), us, static_cast<double>(bytes) / us * 1e-3);
  }
}
