// SPDX-License-Identifier: Apache-2.0
// Simulates many seeds, or shows one.
//
//   simulate_faults job --seeds 1000000          runs so many seeds, from 1 on; ends at the first that breaks a rule
//   simulate_faults job --seconds 60             runs seeds for so long
//   simulate_faults job --seed 4711 --trace      prints all that happens in one run
//
// Exit code: 0 where every rule holds; 1 where a seed has broken one; 2 for arguments that cannot be used.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <string_view>

#include "simulation.hpp"

namespace {

using namespace simulate;

const std::map<std::string_view, Simulation> simulations{{"job", simulate_job}, {"checkpoints", simulate_checkpoints}, {"shards", simulate_shards}};

// What a batch tells the program that started it.
struct Shared {
  std::uint64_t seed;  // that runs now
  char broken[1024];   // the rule; empty: none
  Counts counts;
};

// What the library prints on stderr belongs to the trace.
bool show_stderr = false;
ssize_t take_line(void*, const char* text, size_t size) {
  if (auto* const kernel = Kernel::current(); show_stderr && kernel != nullptr) {
    std::string line{text, size};
    while (!line.empty() && line.back() == '\n') line.pop_back();
    if (!line.empty()) kernel->trace("says: " + line);
  }
  return static_cast<ssize_t>(size);
}
void divert_stderr() {
  cookie_io_functions_t functions{};
  functions.write = take_line;
  stderr = ::fopencookie(nullptr, "w", functions);
  std::setvbuf(stderr, nullptr, _IOLBF, 4096);
}

// Runs seeds in a process of its own: killed processes of a simulation leave their memory behind, and a crash ends only the batch.
bool run_batch(Simulation simulation, std::uint64_t first, std::uint64_t end, bool traced, Shared& shared) {
  std::fflush(stdout);
  const auto child = ::fork();
  if (child == 0) {
    show_stderr = traced;
    divert_stderr();
    for (shared.seed = first; shared.seed < end; ++shared.seed) {
      const auto broken = simulation(shared.seed, traced, shared.counts);
      if (broken.empty()) continue;
      std::strncpy(shared.broken, broken.c_str(), sizeof shared.broken - 1);
      std::fflush(stdout);
      ::_exit(1);
    }
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) std::snprintf(shared.broken, sizeof shared.broken, "the simulated code ended by signal %d (%s)", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return shared.broken[0] == '\0';
}

int usage(const char* text) {
  std::fprintf(stderr, "simulate_faults: %s\nsimulate_faults job|checkpoints|shards [--seeds N] [--seconds S] [--first N] [--seed N] [--trace]\n", text);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const auto found = argc > 1 ? simulations.find(argv[1]) : simulations.end();
  if (found == simulations.end()) return usage("name what to simulate");
  std::uint64_t first = 1, count = 100;
  double longest = 1e9;
  bool traced = false;
  for (int i = 2; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--trace") traced = true;
    else if (i + 1 == argc) return usage("a number is missing");
    else if (flag == "--seed") first = std::strtoull(argv[++i], nullptr, 10), count = 1;
    else if (flag == "--seeds") count = std::strtoull(argv[++i], nullptr, 10);
    else if (flag == "--seconds") longest = std::strtod(argv[++i], nullptr), count = UINT64_MAX / 2;
    else if (flag == "--first") first = std::strtoull(argv[++i], nullptr, 10);
    else return usage("there is no such flag");
  }
  // The library writes the command line of its process into files. It must be the same in every run of a seed.
  const std::string program = argv[0], name = argv[1];
  for (int i = 0; i < argc; ++i) std::memset(argv[i], '\0', std::strlen(argv[i]));
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared{};
  const auto began = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
  bool good = true;
  std::uint64_t next = first;
  for (; next < first + count && good && passed() < longest; next = std::min(next + 500, first + count)) good = run_batch(found->second, next, std::min(next + 500, first + count), traced, shared);
  const double seconds = passed();
  const auto runs = good ? next - first : shared.seed - first + 1;
  shared.counts.each([](const char* name, std::uint64_t value) { std::printf("%12llu  %s\n", static_cast<unsigned long long>(value), name); });
  std::printf("%llu seeds in %.1f s, %.0f each second\n", static_cast<unsigned long long>(runs), seconds, static_cast<double>(runs) / seconds);
  if (good) return 0;
  std::printf("seed %llu: %s\nsee it: %s %s --seed %llu --trace\n", static_cast<unsigned long long>(shared.seed), shared.broken, program.c_str(), name.c_str(),
              static_cast<unsigned long long>(shared.seed));
  return 1;
}
