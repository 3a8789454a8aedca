// SPDX-License-Identifier: Apache-2.0
// How and where an experiment runs. `replicas`, `seed` and `threads_per_device` decide its bits; the rest never changes one. (In the
// asynchronous regime, `regime`, `staleness` and `sync_group`, bits are not promised: docs/asynchronous.md.)
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/devices/kernel_choice.hpp>
#include <replicator/replicate/checkpoint_options.hpp>
#include <replicator/replicate/deployment_flags.hpp>
#include <replicator/replicate/device_name.hpp>
#include <replicator/replicate/regime.hpp>
#include <replicator/replicate/see_options.hpp>

namespace replicator {

struct Deployment {
  int replicas = 1;                                  // over all hosts
  std::vector<DeviceName> devices = {DeviceName{}};  // of this process; replicas are dealt to them in contiguous blocks
  int logical_devices = 1;                           // of a replica, for replica.logical_device(i): see devices_per_replica
  std::uint64_t seed = 0;
  std::string transport = "auto";              // between processes: shared_memory on one machine, else ucx; or one by name
  std::string schedule = "auto";               // of all_reduces between devices, see collectives/algorithms/all_reduces.hpp
  std::string topology = {};                   // a file of figures by which schedules are chosen, measured where it does not exist; empty: none
  std::string link = {};                       // the links between processes in words, "12.5GB/s,2us", in place of such a file; empty: not said
  Regime regime = Regime::synchronous;         // when the gradients of replicas meet
  std::optional<std::int64_t> staleness = {};  // asynchronous: by so many updates of others the values of a gradient may be old; none: any
  int sync_group = 1;                          // asynchronous: replicas in a row that are synchronous with each other
  int threads_per_device = 1;                  // OpenMP threads of a device's kernels; another number may change bits
  KernelChoice kernel_choice = {};             // what the libraries of kernels may do for speed: each changes bits
  std::int64_t bucket_bytes = 4 << 20;         // small all_reduces are merged up to this size
  std::int64_t recompute_bytes = 64 << 10;     // activations at least this big are computed again for the backward pass where that is cheap
  std::int64_t memory_limit = 0;               // bytes that a step may need on each device; 0: what the device has
  bool capture = true;                         // what GPUs do in every step is captured as CUDA graphs and replayed
  std::chrono::seconds deadline{300};          // for every wait on another device; 0 waits without end
  std::chrono::seconds connect_deadline{60};   // how long the processes of a job look for each other
  std::chrono::milliseconds late{10000};       // a wait of so long is told on stderr, with who is missing; 0: never
  std::string job_token_file = {};             // what the processes prove to each other; empty: REPLICATOR_JOB_TOKEN, if set
  std::string interface = {};                  // of the network, by name or address, to keep to; empty: REPLICATOR_INTERFACE, if set
  bool elastic = false;                        // a job of several processes goes on when it loses some: docs/failures.md
  int input_threads = 0;                       // threads that decode; 0: as many as there are usable_cores
  SeeOptions see = {};                         // what is recorded and written about the steps
  CheckpointOptions checkpoint = {};           // where and when the state of the experiment is written
  std::vector<std::string> remaining = {};     // arguments that are not the deployment's, in order, without the program's name

  // Takes its own flags from the command line and leaves the others in `remaining`. Throws BuildError for values that
  // cannot be. The hosts come from the launcher (PMIx) or from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
  static Deployment from(int argc, const char* const* argv) {
    return from({argv + (argc > 0 ? 1 : 0), static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)});
  }
  static Deployment from(std::span<const char* const> arguments) {
    Deployment result;
    detail::take_flags(result, arguments);
    return result;
  }
  // For programs without flags of their own: --help and -h print help() and end the program with exit code 0; what `from`
  // would leave is refused, with the flag that was perhaps meant. Throws BuildError.
  static Deployment only_from(int argc, const char* const* argv) {
    Deployment result;
    detail::take_only_flags(result, {argv + (argc > 0 ? 1 : 0), static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)});
    return result;
  }

  // The devices are dealt to replicas in groups of so many: one for each logical device, or all of them, shared, where there
  // are fewer. Throws BuildError where there are none, or they cannot be dealt evenly.
  int devices_per_replica() const {
    const auto count = static_cast<int>(devices.size());
    if (count == 0) throw BuildError{"a deployment without devices was asked for: name at least one, as --devices cpu:0 does"};
    if (logical_devices < 1) throw BuildError{"--logical-devices is " + std::to_string(logical_devices) + ": a replica needs at least 1"};
    if (count > logical_devices && count % logical_devices != 0)
      throw BuildError{"--devices names " + std::to_string(count) + " devices for replicas of " + std::to_string(logical_devices) +
                       " logical devices: name a multiple of " + std::to_string(logical_devices) + ", or fewer, which they share"};
    return count < logical_devices ? count : logical_devices;
  }

  // For --help texts: what `from` takes.
  static std::string help() { return detail::help_of_flags<Deployment>(); }
};

}  // namespace replicator
