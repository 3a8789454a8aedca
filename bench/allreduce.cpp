// SPDX-License-Identifier: Apache-2.0
// Times an all-reduce of float32 between threads of one process: size, microseconds, GB/s of payload. With two ranks it
// also times a bare loop on the same threads and buffers. There each thread reads both inputs, writes its half of both
// outputs, and waits for the other. Times are medians. On a loaded machine only the ratio is reliable, best under `chrt
// -f 10`.
//
//   allreduce [ranks = 2] [largest bytes = 64 MiB] [samples = 101] [smallest bytes = 64] [schedule = auto, or its name]
#include <sched.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/transport/in_process.hpp>
#include <thread>
#include <vector>

namespace rc = replicator::detail::collectives;
namespace rt = replicator::detail::transport;

namespace {

// The lower bound: two threads that add on the buffers of a collective.
class BareLoop {
 public:
  explicit BareLoop(std::int64_t elements) : elements_{elements} {}
  void give(int rank, rc::Collective& collective) {
    in_[rank] = reinterpret_cast<const float*>(collective.input(0));
    out_[rank] = reinterpret_cast<float*>(collective.output());
  }
  void run(int rank) {
    const std::int64_t middle = elements_ / 32 * 16;
    add(out_[rank], out_[1 - rank], in_[0], in_[1], rank == 0 ? 0 : middle, rank == 0 ? middle : elements_);
    meet(rank);
  }
  void meet(int rank) {
    const int mine = ++arrived_[rank].count;
    for (int spin = 0; arrived_[1 - rank].count < mine; ++spin)
      if (spin > 10000) std::this_thread::yield();
  }

 private:
  static void add(float* mine, float* peer, const float* left, const float* right, std::int64_t begin,
                  std::int64_t end) {
    float line[16];
    std::int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
      for (std::int64_t j = 0; j < 16; ++j) line[j] = left[i + j] + right[i + j];
      for (std::int64_t j = 0; j < 16; ++j) mine[i + j] = line[j];
      for (std::int64_t j = 0; j < 16; ++j) peer[i + j] = line[j];
    }
    for (; i < end; ++i) mine[i] = peer[i] = left[i] + right[i];
  }

  struct alignas(64) Counter {
    std::atomic<int> count{0};
  };
  std::int64_t elements_;
  const float* in_[2] = {};
  float* out_[2] = {};
  Counter arrived_[2];
};

struct Times {
  double ours = 0, bare = 0;
};

// Microseconds per call, over `repeat` calls.
template <class F>
double time_of(int repeat, F&& call) {
  const auto begin = rt::Clock::now();
  for (int i = 0; i < repeat; ++i) call();
  return std::chrono::duration<double, std::micro>(rt::Clock::now() - begin).count() / repeat;
}

// The median over the samples, after two warm-up samples that refill the caches.
template <class F>
double median_time(int samples, int repeat, F&& call) {
  std::vector<double> times;
  for (int sample = -2; sample < samples; ++sample) {
    const double time = time_of(repeat, call);
    if (sample >= 0) times.push_back(time);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void run_rank(rc::Communicator& communicator, const rc::CollectiveSpec& spec, const rc::Schedule& schedule, int samples,
              int repeat, BareLoop* bare, Times& times) {
  const auto collective = communicator.prepare(spec, schedule);
  for (std::int64_t i = 0; i < spec.elements; ++i) reinterpret_cast<float*>(collective->input(0))[i] = 1;
  const auto all_reduce = [&] {
    collective->start();
    collective->wait(rt::Clock::now() + std::chrono::seconds{60});
  };
  const int rank = communicator.rank();
  if (bare) bare->give(rank, *collective);
  times.ours = median_time(samples, repeat, all_reduce);
  if (bare) times.bare = median_time(samples, repeat, [&] { bare->run(rank); });
}

// Pins the thread to a core. The library does not pin its devices.
void pin(int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(rank) % static_cast<unsigned>(replicator::detail::usable_cores()), &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

Times measure(int ranks, std::int64_t bytes, int samples, const rc::AllReducePreference& wanted) {
  rc::CollectiveSpec spec;
  spec.elements = bytes / 4;
  const int repeat = static_cast<int>(std::clamp<std::int64_t>((1 << 25) / bytes, 1, 1000));
  rt::InProcessGroup group{ranks};
  const bool any_order = wanted.name != "auto";
  const rc::Choice choice = rc::choose(rc::Kind::all_reduce, bytes, {ranks, ranks}, 0, any_order, wanted, {}, rt::InProcess{group, 0}.latency());
  BareLoop bare{ranks == 2 ? spec.elements : 0};
  std::vector<Times> times(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      pin(rank);
      const auto communicator = rc::make_communicator(rt::InProcess{group, rank}, {ranks, ranks});
      run_rank(*communicator, spec, choice.schedule, samples, repeat, ranks == 2 ? &bare : nullptr,
               times[static_cast<std::size_t>(rank)]);
    });
  for (auto& thread : threads) thread.join();
  return times[0];
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::int64_t largest = argc > 2 ? std::atoll(argv[2]) : std::int64_t{64} << 20;
  const int samples = argc > 3 ? std::max(1, std::atoi(argv[3])) : 101;
  const std::int64_t smallest = argc > 4 ? std::max(4LL, std::atoll(argv[4])) : 64;
  const rc::AllReducePreference wanted = rc::parse_all_reduce(argc > 5 ? argv[5] : "auto", {ranks});
  std::printf("%d ranks, in process\n%12s %12s %10s", ranks, "bytes", "us", "GB/s");
  std::printf(ranks == 2 ? " %12s %14s\n" : "\n", "bare us", "bare / ours");
  for (std::int64_t bytes = smallest; bytes <= largest; bytes *= 4) {
    const Times times = measure(ranks, bytes, bytes > (1 << 24) ? std::min(samples, 9) : samples, wanted);
    const double us = times.ours;
    std::printf("%12lld %12.2f %10.2f", static_cast<long long>(bytes), us, static_cast<double>(bytes) / us * 1e-3);
    if (ranks == 2) std::printf(" %12.2f %14.2f", times.bare, times.bare / us);
    std::printf("\n");
  }
}
