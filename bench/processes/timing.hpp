// SPDX-License-Identifier: Apache-2.0
// The measurement that all systems share: the same buffers, the same calls, the same number of them, the same clock.
// Needs no library.
//
// Buffers hold `bytes` on every process. That is the amount that all_reduce and broadcast move, the input of
// reduce_scatter (which gives each process its block), the output of all_gather, and both of all_to_all.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace processes {

struct Options {
  std::string collective = "all_reduce";
  std::int64_t smallest = 4, largest = std::int64_t{256} << 20;
  int samples = 15;

  int samples_of(std::int64_t bytes) const { return bytes >= (std::int64_t{16} << 20) ? std::min(samples, 5) : samples; }
};

// Ignores other words of the form key=value: a system may read them.
inline Options options_from(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], key = word.substr(0, word.find('=') + 1), value = word.substr(key.size());
    if (key == "collective=") options.collective = value;
    if (key == "smallest=") options.smallest = std::atoll(value.c_str());
    if (key == "largest=") options.largest = std::atoll(value.c_str());
    if (key == "samples=") options.samples = std::max(1, std::atoi(value.c_str()));
  }
  return options;
}

// Lengths in elements, for `bytes` and P processes.
struct Lengths {
  std::int64_t block, input, output;
};
inline Lengths lengths_of(const std::string& collective, std::int64_t bytes, int processes) {
  const std::int64_t all = bytes / 4, part = all / processes;
  if (collective == "reduce_scatter") return {part, part * processes, part};
  if (collective == "all_gather") return {part, part, part * processes};
  if (collective == "all_to_all") return {part, part * processes, part * processes};
  return {all, all, all};
}

// Process r contributes (r + 1) (1 + i mod 5) as element i of its input.
inline float given(int process, std::int64_t i) { return static_cast<float>((process + 1) * (1 + i % 5)); }
inline float expected(const std::string& collective, int me, int processes, std::int64_t block, std::int64_t i) {
  const std::int64_t from = block == 0 ? 0 : i / block, inside = block == 0 ? 0 : i % block;
  const int sum = processes * (processes + 1) / 2 - 1;  // the sum over all equals the contribution of a process of this number
  if (collective == "reduce_scatter") return given(sum, me * block + i);
  if (collective == "all_gather") return given(static_cast<int>(from), inside);
  if (collective == "all_to_all") return given(static_cast<int>(from), me * block + inside);
  return given(collective == "broadcast" ? 0 : sum, i);
}

// Checks the results of one call. A System has rank(), size(), barrier(), maximum(double) over the processes, and
// prepare(collective, lengths). The latter sets up input() and output() for call(), until the next prepare.
template <class System>
void require_right(System& system, const std::string& collective, const Lengths& lengths) {
  for (std::int64_t i = 0; i < lengths.input; ++i) system.input()[i] = given(system.rank(), i);
  system.barrier();
  system.call();
  for (std::int64_t i = 0; i < lengths.output; ++i) {
    const float wanted = expected(collective, system.rank(), system.size(), lengths.block, i);
    if (system.output()[i] == wanted) continue;
    std::fprintf(stderr, "process %d: %s gave %g at place %lld, expected %g\n", system.rank(), collective.c_str(),
                 system.output()[i], static_cast<long long>(i), wanted);
    std::exit(1);
  }
  system.barrier();
}

inline int calls_in_sample(std::int64_t bytes) { return static_cast<int>(std::clamp<std::int64_t>((1 << 24) / bytes, 1, 200)); }

struct Times {
  double median, least;
};

// Microseconds per call on the slowest process.
template <class System>
double sampled(System& system, int calls) {
  system.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) system.call();
  return system.maximum(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / calls);
}

// Times over the samples, after two warm-up samples. The first of these determines how many calls fit into a sample. On
// a machine with other load, only the least time is meaningful.
template <class System>
Times microseconds(System& system, std::int64_t bytes, int samples) {
  constexpr double longest_sample = 20000;
  const int most = calls_in_sample(bytes);
  const double first = sampled(system, std::min(most, 5));
  const int calls = std::clamp(static_cast<int>(longest_sample / first), 1, most);
  sampled(system, calls);
  std::vector<double> times;
  for (int sample = 0; sample < samples; ++sample) times.push_back(sampled(system, calls));
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

// Process 0 prints "bytes median least" for sizes in powers of four.
template <class System>
void measure(System& system, const Options& options) {
  for (std::int64_t bytes = options.smallest; bytes <= options.largest; bytes *= 4) {
    const Lengths lengths = lengths_of(options.collective, bytes, system.size());
    if (lengths.block == 0) continue;
    system.prepare(options.collective, lengths);
    require_right(system, options.collective, lengths);
    const Times times = microseconds(system, bytes, options.samples_of(bytes));
    if (system.rank() == 0) {
      std::printf("%lld %.3f %.3f\n", static_cast<long long>(bytes), times.median, times.least);
      std::fflush(stdout);
    }
  }
}

}  // namespace processes
