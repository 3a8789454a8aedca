// SPDX-License-Identifier: Apache-2.0
// How and where an experiment runs. Only `replicas` and `seed` are part of the experiment; the rest never changes a bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/replicate/checkpoint_options.hpp>
#include <replicator/replicate/device_name.hpp>
#include <replicator/replicate/see_options.hpp>

namespace replicator {

namespace detail {
// Not inline, so that replicator::compiled can hold all that reads a command line.
template <class Target>
void take_flags(Target& deployment, std::span<const char* const> arguments);
}  // namespace detail

struct Deployment {
  int replicas = 1;                                  // over all hosts
  std::vector<DeviceName> devices = {DeviceName{}};  // of this process; replicas are dealt to them in contiguous blocks
  int logical_devices = 1;                           // of a replica, for replica.logical_device(i): see devices_per_replica
  std::uint64_t seed = 0;
  std::string transport = "auto";         // between processes: shared_memory on one machine, else ucx; or one by name
  std::string schedule = "auto";          // of all_reduces between devices, see collectives/all_reduces.hpp
  std::string topology = {};              // a file of figures by which schedules are chosen, measured where it does not exist; empty: none
  int threads_per_device = 1;             // OpenMP threads of a device's kernels
  std::int64_t bucket_bytes = 4 << 20;    // small all_reduces are merged up to this size
  std::int64_t recompute_bytes = 64 << 10;  // activations at least this big are computed again for the backward pass where that is cheap
  std::int64_t memory_limit = 0;          // bytes that a step may need on each device; 0: what the device has
  std::chrono::seconds deadline{300};     // for every wait on another device; 0 waits without end
  std::chrono::milliseconds late{10000};  // a wait of so long is told on stderr, with who is missing; 0: never
  std::string job_token_file = {};        // what the processes prove to each other; empty: REPLICATOR_JOB_TOKEN, if set
  std::string interface = {};             // of the network, by name or address, to keep to; empty: REPLICATOR_INTERFACE, if set
  int input_threads = 0;                  // threads that decode; 0: as many as the machine has cores
  SeeOptions see = {};                    // what is recorded and written about the steps
  CheckpointOptions checkpoint = {};      // where and when the state of the experiment is written
  std::vector<std::string> remaining = {};  // arguments that are not the deployment's, in order, without the program's name

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

  // For --help texts.
  static std::string help() {
    return std::string{"Where it runs (none of these changes a bit of the result, save --replicas and --seed):\n"
           "  --replicas N            replicas over all hosts (1)\n"
           "  --devices LIST          devices of each process: cpu:0, cpu:0-3, cuda:0,cuda:1, cuda:0x4 (cpu:0)\n"
           "  --logical-devices N     devices over which replica.logical_device(i) spreads each replica (1)\n"
           "  --serial                all replicas in the calling thread\n"
           "  --seed N                of initial values, random numbers and data (0)\n"
           "  --transport NAME        between processes: auto, shared_memory, ucx (auto)\n"
           "  --schedule NAME         of all_reduces: auto, owner_computes, direct, ring, halving_doubling, binary_tree,\n"
           "                          naive, hierarchical or hierarchical:4x2 (auto; refused where it would change a bit)\n"
           "  --topology FILE         choose schedules by the links' latency and bandwidth in FILE; measured and written where there is none\n"
           "  --threads-per-device N  OpenMP threads of a device's kernels (1; changes bits)\n"
           "  --bucket-bytes N        small all_reduces are merged up to this size (4194304)\n"
           "  --recompute-bytes N     activations from this size on are computed again for the backward pass where that is cheap (65536)\n"
           "  --memory-limit SIZE     that a step may need on each device: 8GiB, 512MiB or bytes (what the device has)\n"
           "  --deadline SECONDS      for every wait on another device, 0 for none (300)\n"
           "  --job-token-file FILE   a secret: only processes that have it meet (the variable REPLICATOR_JOB_TOKEN, if set)\n"
           "  --interface NAME        of the network, or an address of this machine, to keep to (REPLICATOR_INTERFACE, if set)\n"
           "  --input-threads N       threads that decode input (0: one per core)\n"}
           + CheckpointOptions::help() + SeeOptions::help() +
           "Several processes: start them with mpirun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.\n";
  }
};

namespace detail {

inline bool is_deployment_flag(std::string_view flag) {
  for (const std::string_view known :
       {"--replicas", "--devices", "--logical-devices", "--seed", "--transport", "--schedule", "--topology", "--threads-per-device",
        "--bucket-bytes", "--recompute-bytes", "--memory-limit", "--deadline", "--input-threads", "--job-token-file", "--interface", "--check-drift"})
    if (flag == known) return true;
  return SeeOptions::takes(flag) || CheckpointOptions::takes(flag);
}

inline bool set_switch(Deployment& d, std::string_view flag) {
  if (flag == "--serial") d.devices = {DeviceName{}};
  else if (flag == "--resume") d.checkpoint.resume = true;
  else return d.see.set_switch(flag);
  return true;
}

inline void set_flag(Deployment& d, std::string_view flag, std::string_view value) {
  constexpr auto any = std::numeric_limits<std::int64_t>::max();
  const auto number = [&](std::int64_t lowest, std::int64_t highest = std::numeric_limits<int>::max()) {
    return parse_number(flag, value, lowest, highest);
  };
  if (flag == "--replicas") d.replicas = static_cast<int>(number(1));
  else if (flag == "--devices") d.devices = parse_devices(value);
  else if (flag == "--logical-devices") d.logical_devices = static_cast<int>(number(1));
  else if (flag == "--seed") d.seed = static_cast<std::uint64_t>(number(0, any));
  else if (flag == "--threads-per-device") d.threads_per_device = static_cast<int>(number(1));
  else if (flag == "--bucket-bytes") d.bucket_bytes = number(1, any);
  else if (flag == "--recompute-bytes") d.recompute_bytes = number(0, any);
  else if (flag == "--memory-limit") d.memory_limit = parse_bytes(flag, value);
  else if (flag == "--deadline") d.deadline = std::chrono::seconds{number(0)};
  else if (flag == "--input-threads") d.input_threads = static_cast<int>(number(0));
  else if (flag == "--check-drift") d.see.check_drift = static_cast<std::uint64_t>(number(1, any));
  else if (flag == "--schedule") d.schedule = value;
  else if (flag == "--topology") d.topology = value;
  else if (flag == "--transport") d.transport = value;
  else if (flag == "--job-token-file") d.job_token_file = value;
  else if (flag == "--interface") d.interface = value;
  else if (flag == "--checkpoint") d.checkpoint.folder = value;
  else if (flag == "--every") d.checkpoint.every = static_cast<std::uint64_t>(number(1, any));
  else if (flag == "--keep") d.checkpoint.keep = static_cast<int>(number(1));
  else d.see.set(flag, value);
}

template <class Target>
void take_flags(Target& deployment, std::span<const char* const> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view flag = arguments[i];
    if (set_switch(deployment, flag)) continue;
    std::string_view value;
    const auto equals = flag.find('=');
    const bool joined = flag.starts_with("--") && equals != std::string_view::npos;
    if (joined) {
      value = flag.substr(equals + 1);
      flag = flag.substr(0, equals);
    }
    if (!is_deployment_flag(flag)) {
      deployment.remaining.emplace_back(arguments[i]);
      continue;
    }
    if (!joined) {
      if (i + 1 == arguments.size()) throw BuildError{std::string{flag} + " needs a value"};
      value = arguments[++i];
    }
    set_flag(deployment, flag, value);
  }
}

}  // namespace detail

}  // namespace replicator
