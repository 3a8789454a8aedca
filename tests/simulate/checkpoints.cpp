// SPDX-License-Identifier: Apache-2.0
// The writing of checkpoints on a disk that tears writes, runs full and forgets names. A run is killed at any of its system
// calls, with or without the power of its host. The next run must find a whole checkpoint: the last one that was finished, or a newer one.
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/engine/state/checkpoint.hpp>
#include <replicator/engine/state/checkpoint_folder.hpp>

#include "simulation.hpp"

namespace simulate {

namespace {

using namespace replicator;
using replicator::detail::Checkpoint;
using replicator::detail::CheckpointFolder;

constexpr std::uint64_t every = 10;

struct Disk {
  Kernel& kernel;
  std::string folder = "/sim/runs/a/b";
  int keep = 1;
  std::size_t values = 64;
  std::uint64_t finished = 0;  // steps in the last checkpoint whose writing has returned
  bool has_begun = false;      // the present run has read the newest checkpoint
};

std::vector<float> values_after(const Disk& disk, std::uint64_t steps) {
  std::vector<float> values;
  for (std::size_t i = 0; i < disk.values; ++i) values.push_back(static_cast<float>(mixed(steps, i) % 100000));
  return values;
}

void write(Disk& disk, const CheckpointFolder& folder, std::uint64_t steps) {
  const auto values = values_after(disk, steps);
  Checkpoint checkpoint;
  checkpoint.steps[0] = {steps, false, 1};
  checkpoint.variables["w"] = {};
  const auto file = folder.file(steps);
  folder.require_regular(file);
  const TensorType type{DType::float32, Shape{static_cast<std::int64_t>(values.size())}};
  replicator::detail::write_checkpoint(file, checkpoint, {{"w", type, reinterpret_cast<const std::byte*>(values.data())}});
  disk.finished = std::max(disk.finished, steps);
  disk.kernel.trace("has written " + file);
  folder.keep(disk.keep);
}

// The steps in the newest checkpoint; 0 where there is none.
std::uint64_t read_newest(Disk& disk, const CheckpointFolder& folder) {
  const auto finished = disk.finished;
  const auto files = folder.newest_first();
  std::uint64_t steps = 0;
  if (!files.empty()) {
    try {
      const auto found = replicator::detail::read_checkpoint(files[0]);
      steps = found.total();
      const auto values = values_after(disk, steps);
      const auto& read = found.values.at("w");
      if (read.size_bytes() != values.size() * sizeof(float) || std::memcmp(read.data(), values.data(), read.size_bytes()) != 0)
        disk.kernel.violation("the newest checkpoint has other values than were written: " + files[0]);
    } catch (const Error& error) {
      disk.kernel.violation(std::string{"the newest checkpoint cannot be read: "} + error.what());
    }
  }
  if (steps < finished)
    disk.kernel.violation("a checkpoint of " + std::to_string(finished) + " steps was finished, and the newest one has " + std::to_string(steps));
  return steps;
}

// A run that goes on where the newest checkpoint is, and writes `count` more. `lock`: as an ordinary run; otherwise as a process
// that takes over from one that was stopped.
void run(Disk& disk, int count, bool lock) {
  try {
    CheckpointFolder folder{disk.folder};
    if (lock) folder.prepare();
    else folder.take_over();
    auto steps = read_newest(disk, folder);
    disk.has_begun = true;
    for (int i = 0; i < count; ++i) write(disk, folder, steps += every);
  } catch (const DataError& error) {  // the disk is full, or fails
    disk.kernel.trace(std::string{"ends: "} + error.what());
  } catch (const std::exception& error) {
    disk.kernel.violation(std::string{"a run throws another error than DataError: "} + error.what());
  }
}

// How many system calls an undisturbed run makes.
std::uint64_t calls_of_run(int count) {
  static std::map<int, std::uint64_t> known;
  auto& calls = known[count];
  if (calls == 0) {
    Kernel kernel{1, false};
    Disk disk{kernel};
    kernel.files().make_folder("/sim");
    auto& process = kernel.start(0, "run", [&] { run(disk, count, true); });
    kernel.run(second);
    calls = process.calls;
  }
  return calls;
}

}  // namespace

std::string simulate_checkpoints(std::uint64_t seed, bool traced, Counts& counts) {
  constexpr int saves = 3;
  const auto calls = calls_of_run(saves);  // before this kernel exists
  Kernel kernel{seed, traced};
  auto& random = kernel.random();
  Disk disk{kernel};
  disk.keep = 1 + static_cast<int>(random.below(3));
  disk.values = 1 + random.below(3000);
  auto& files = kernel.files();
  files.make_folder("/sim");
  if (OpenFile root; files.open("/", 0, root) == 0) files.sync(root);
  files.short_writes = random.chance(0.3);
  files.interrupted_writes = random.chance(0.3);
  const int runs = 1 + static_cast<int>(random.below(4));
  for (int i = 0; i < runs && kernel.violated().empty(); ++i) {
    files.space = SIZE_MAX;
    files.failing_sync = disk.has_begun = false;
    auto& process = kernel.start(0, "run " + std::to_string(i), [&] { run(disk, saves, true); });
    const bool power = random.chance(0.5), writer = random.chance(0.2);
    // The first run of each seed dies one call later than that of the seed before.
    const auto call = i == 0 ? 1 + seed % calls : 1 + random.below(calls + calls / 2);
    if (random.chance(0.15)) {
      counts.add("disk full");
      files.space = random.below(4 * sizeof(float) * disk.values);
    } else if (random.chance(0.1)) {
      counts.add("disk that fails to flush");
      kernel.after(random.between(0, 200 * us), [&] { files.failing_sync = true; });
    }
    if (writer) {
      counts.add("process stopped, and another one writes");
      const auto stopped = static_cast<Time>(random.between(0, 300 * us));
      kernel.after(stopped, [&] { kernel.stop(process); });
      kernel.after(stopped + ms, [&] {
        if (process.alive && disk.has_begun) kernel.start(1, "second writer", [&] { run(disk, 2, false); });
      });
      kernel.after(stopped + random.between(ms, 3 * ms), [&] { kernel.proceed(process); });
    } else {
      counts.add(power ? "host loses its power" : "process killed");
      process.dies_at_call = call;
    }
    kernel.run(kernel.now() + second);
    for (const auto& one : kernel.processes()) {
      if (one->alive && one->fibers.front()->started && kernel.violated().empty()) kernel.violation(one->name + " does not end");
    }
    if (power && kernel.violated().empty()) {
      kernel.trace("POWER OFF");
      files.lose_power(random);
    }
  }
  if (kernel.violated().empty()) {
    files.space = SIZE_MAX;
    files.failing_sync = false;
    kernel.start(0, "last run", [&] { run(disk, 0, true); });
    kernel.run(kernel.now() + second);
  }
  counts.add("runs", static_cast<std::uint64_t>(runs) + 1);
  counts.add("changes of the disk", files.operations);
  return kernel.violated();
}

}  // namespace simulate
