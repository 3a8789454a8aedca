// SPDX-License-Identifier: Apache-2.0
// Lets compared programs measure in turns, so that other load of the machine affects all of them alike, and print what
// turns.py reads.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

namespace bench {

// Measures once. With `turns`, measures for each line on standard input until its end, and prints "ready" before each.
inline void take_turns(bool turns, const std::function<void()>& measure) {
  if (!turns) return measure();
  const auto ready = [] { return std::puts("ready"), std::fflush(stdout); };
  ready();
  for (std::string line; std::getline(std::cin, line); ready()) measure();
}

// The most memory that this process has had so far.
inline double peak_mib() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) / 1024;
}

// Repeats the step for so many seconds, at least three times. Prints its median time, and the memory taken beyond `before` (MiB).
inline void time_steps(double seconds, double before, const std::function<void()>& step) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::vector<double> times;
  for (const auto begin = Clock::now(); times.size() < 3 || since(begin) < seconds;) {
    const auto start = Clock::now();
    step();
    times.push_back(since(start));
  }
  std::sort(times.begin(), times.end());
  std::printf("%.1f us/step, at most %.0f MiB\n", 1e6 * times[times.size() / 2], peak_mib() - before);
}

}  // namespace bench
