// SPDX-License-Identifier: Apache-2.0
// Deployment: how and where an experiment runs. `replicas`, `seed`, `threads_per_device`, `kernel_choice` and the kind
// of the devices decide the bits of the results. No other option changes them. The asynchronous regime (`regime`,
// `staleness`, `sync_group`) promises no bits: docs/asynchronous.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/processes.hpp>
#include <replicator/devices/kernel_choice.hpp>
#include <replicator/replicate/checkpoint_options.hpp>
#include <replicator/replicate/device_name.hpp>
#include <replicator/replicate/regime.hpp>
#include <replicator/replicate/see_options.hpp>

namespace replicator {

struct Deployment;

namespace detail {  // the code is in replicate/deployment_flags.hpp
template <class D = Deployment>
D take_flags(std::span<const char* const> arguments);
template <class D = Deployment>
D take_only_flags(std::span<const char* const> arguments);
template <class D = Deployment>
std::string help_of_flags();
}  // namespace detail

struct Deployment {
  int replicas = 1;  // over all hosts
  // Devices of this process: rp::parse_devices("cpu:0-1"), or {{rp::DeviceKind::cpu, 0}, {rp::DeviceKind::cpu, 1}}. Each gets a
  // contiguous block of replicas.
  std::vector<DeviceName> devices = {DeviceName{}};
  int logical_devices = 1;  // logical devices of a replica, for replica.logical_device(i): see devices_per_replica
  std::uint64_t seed = 0;
  std::string transport = "auto";              // between processes: shared_memory on one machine, else ucx; or one by name
  std::string schedule = "auto";               // algorithm of all_reduces between devices, see collectives/algorithms/all_reduces.hpp
  std::string topology = {};                   // a file of measured links, from which schedules are chosen; it is measured and written where it does not exist; empty: none
  std::string link = {};                       // the links between processes in words, "12.5GB/s,2us", instead of such a file; empty: not given
  Regime regime = Regime::synchronous;         // whether replicas wait for each other
  std::optional<std::int64_t> staleness = {};  // asynchronous: how many updates of others a gradient may have missed; none: any number
  int sync_group = 1;                          // asynchronous: groups of so many consecutive replicas are synchronous with each other
  int threads_per_device = 1;                  // OpenMP threads of a device's kernels; another number may change bits
  KernelChoice kernel_choice = {};             // faster kernels of the libraries; each choice changes bits
  std::int64_t bucket_bytes = 4 << 20;         // small all_reduces are merged up to this size
  std::int64_t recompute_bytes = 64 << 10;     // activations of at least this size are recomputed in the backward pass where that is cheap
  std::int64_t memory_limit = 0;               // bytes that a step may need on each device; 0: the memory of the device
  bool capture = true;                         // captures the work of GPUs as CUDA graphs and replays them in every step
  std::chrono::seconds deadline{300};          // limit of every wait on another device; 0: no limit
  std::chrono::seconds connect_deadline{60};   // limit of the rendezvous of the job's processes
  std::chrono::milliseconds late{10000};       // a wait that takes longer is reported on stderr, with the missing ranks; 0: never
  std::string job_token_file = {};             // file with the secret that the processes prove to each other; empty: REPLICATOR_JOB_TOKEN, if set
  bool insecure = false;                       // without a secret, processes of other machines may take part, and everybody is believed; also by REPLICATOR_INSECURE=1
  std::string interface = {};                  // the only network interface to use, by name or address; empty: REPLICATOR_INTERFACE, if set
  bool elastic = false;                        // a job of several processes continues when it loses some: docs/elastic.md
  std::string elastic_arbiter = {};            // which part of an elastic job goes on, also of two equal ones: a folder that all hosts share, or addresses of an etcd, which also tells processes where the job is; empty: none
  int input_threads = 0;                       // threads that decode input; 0: as many as usable_cores
  SeeOptions see = {};                         // traces, reports and files about the steps
  CheckpointOptions checkpoint = {};           // when and where checkpoints are written
  std::optional<Processes> processes = {};     // of the job, where the program knows them: processes_of(MPI_Comm); none: from the launcher or the variables
  std::vector<std::string> remaining = {};     // the arguments that are no flags of the deployment, in order, without the program's name

  // Reads its own flags from the command line and puts the other arguments into `remaining`. Throws BuildError for
  // invalid values. The processes of the job come from the launcher (PMIx) or from RANK, WORLD_SIZE, MASTER_ADDR and
  // MASTER_PORT.
  static Deployment from(int argc, const char* const* argv) {
    return from({argv + (argc > 0 ? 1 : 0), static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)});
  }
  static Deployment from(std::span<const char* const> arguments) { return detail::take_flags<Deployment>(arguments); }
  // For programs without flags of their own. --help and -h print help() and end the program with exit code 0. Throws
  // BuildError for an argument that `from` would put into `remaining`, and suggests the most similar flag.
  static Deployment only_from(int argc, const char* const* argv) {
    return detail::take_only_flags<Deployment>({argv + (argc > 0 ? 1 : 0), static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)});
  }

  // The number of devices that share the work of one replica. It is logical_devices, or the number of devices where
  // there are fewer; logical devices then share a device. Throws BuildError where there is no device, or where the
  // devices cannot be divided evenly.
  template <class = void>
  int devices_per_replica() const {
    const auto count = static_cast<int>(devices.size());
    if (count == 0) throw BuildError{"a deployment without devices was asked for: name at least one, as --devices cpu:0 does"};
    if (logical_devices < 1) throw BuildError{"--logical-devices is " + std::to_string(logical_devices) + ": a replica needs at least 1"};
    if (count > logical_devices && count % logical_devices != 0)
      throw BuildError{"--devices names " + std::to_string(count) + " devices for replicas of " + std::to_string(logical_devices) +
                       " logical devices: name a multiple of " + std::to_string(logical_devices) + ", or fewer, which they share"};
    return count < logical_devices ? count : logical_devices;
  }

  // The text of --help: all flags that `from` reads.
  static std::string help() { return detail::help_of_flags<Deployment>(); }
};

}  // namespace replicator
