// SPDX-License-Identifier: Apache-2.0
// How and where an experiment runs. Only `replicas` and `seed` are part of the experiment; the rest never changes a bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <replicator/core/device_kind.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/replicate/checkpoint_options.hpp>
#include <replicator/replicate/see_options.hpp>

namespace replicator {

struct DeviceName {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  int part = 0;  // of a GPU that counts as several devices

  // "cpu:3", "cuda:0", "cuda:0/2"
  std::string text() const { return std::string{name_of(kind)} + ":" + std::to_string(index) + (part ? "/" + std::to_string(part) : ""); }
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

namespace detail {

// "cpu:0", "cpu:0-3", "cuda:0,cuda:1", "cuda:0x4" (four devices on one GPU)
inline std::vector<DeviceName> parse_devices(std::string_view text) {
  const auto bad = [&](std::string_view item) {
    return BuildError{"--devices has \"" + std::string{item} +
                      "\": name devices as cpu:0, cpu:0-3, cuda:0 or cuda:0x4 (one GPU as four), separated by commas"};
  };
  std::vector<DeviceName> devices;
  while (!text.empty()) {
    const auto comma = text.find(',');
    if (comma + 1 == text.size()) throw bad(text);
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    const auto colon = item.find(':');
    const auto kind = item.substr(0, colon);
    if (colon == std::string_view::npos || (kind != "cpu" && kind != "cuda")) throw bad(item);
    const auto times = kind == "cuda" ? item.find('x', colon) : std::string_view::npos;
    const auto range = item.substr(colon + 1, times == std::string_view::npos ? times : times - colon - 1);
    const auto dash = range.find('-');
    const auto first = whole_number<int>(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : whole_number<int>(range.substr(dash + 1), first.value_or(0));
    const auto parts = times == std::string_view::npos ? 1 : whole_number<int>(item.substr(times + 1), 1);
    if (!first || !last || !parts) throw bad(item);
    for (int n = 0; n < (*last - *first + 1) * *parts; ++n) {
      const DeviceName device{kind == "cpu" ? DeviceKind::cpu : DeviceKind::cuda, *first + n / *parts, n % *parts};
      for (const auto& known : devices)
        if (known == device) throw BuildError{"--devices names " + device.text() + " twice"};
      devices.push_back(device);
    }
  }
  if (devices.empty()) throw BuildError{"--devices names no device: try cpu:0"};
  return devices;
}

}  // namespace detail

struct Deployment {
  int replicas = 1;                                  // over all hosts
  std::vector<DeviceName> devices = {DeviceName{}};  // of this process; replicas are dealt to them in contiguous blocks
  int logical_devices = 1;                           // of a replica, for replica.logical_device(i): see devices_per_replica
  std::uint64_t seed = 0;
  std::string transport = "auto";         // between processes: shared_memory on one machine, else ucx; or one by name
  std::string schedule = "auto";          // of all_reduces between devices, see collectives/all_reduces.hpp
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
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      std::string_view flag = arguments[i];
      if (flag == "--serial") {
        result.devices = {DeviceName{}};
        continue;
      }
      if (flag == "--resume") {
        result.checkpoint.resume = true;
        continue;
      }
      if (result.see.set_switch(flag)) continue;
      std::string_view value;
      const auto equals = flag.find('=');
      const bool joined = flag.starts_with("--") && equals != std::string_view::npos;
      if (joined) {
        value = flag.substr(equals + 1);
        flag = flag.substr(0, equals);
      }
      if (!takes(flag)) {
        result.remaining.emplace_back(arguments[i]);
        continue;
      }
      if (!joined) {
        if (i + 1 == arguments.size()) throw BuildError{std::string{flag} + " needs a value"};
        value = arguments[++i];
      }
      result.set(flag, value);
    }
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

 private:
  static bool takes(std::string_view flag) {
    for (const std::string_view known :
         {"--replicas", "--devices", "--logical-devices", "--seed", "--transport", "--schedule", "--threads-per-device",
          "--bucket-bytes", "--recompute-bytes", "--memory-limit", "--deadline", "--input-threads", "--job-token-file", "--interface", "--check-drift"})
      if (flag == known) return true;
    return SeeOptions::takes(flag) || CheckpointOptions::takes(flag);
  }
  void set(std::string_view flag, std::string_view value) {
    constexpr auto any = std::numeric_limits<std::int64_t>::max();
    const auto number = [&](std::int64_t lowest, std::int64_t highest = std::numeric_limits<int>::max()) {
      return parse_number(flag, value, lowest, highest);
    };
    if (flag == "--replicas") replicas = static_cast<int>(number(1));
    else if (flag == "--devices") devices = detail::parse_devices(value);
    else if (flag == "--logical-devices") logical_devices = static_cast<int>(number(1));
    else if (flag == "--seed") seed = static_cast<std::uint64_t>(number(0, any));
    else if (flag == "--threads-per-device") threads_per_device = static_cast<int>(number(1));
    else if (flag == "--bucket-bytes") bucket_bytes = number(1, any);
    else if (flag == "--recompute-bytes") recompute_bytes = number(0, any);
    else if (flag == "--memory-limit") memory_limit = parse_bytes(flag, value);
    else if (flag == "--deadline") deadline = std::chrono::seconds{number(0)};
    else if (flag == "--input-threads") input_threads = static_cast<int>(number(0));
    else if (flag == "--check-drift") see.check_drift = static_cast<std::uint64_t>(number(1, any));
    else if (flag == "--schedule") schedule = value;
    else if (flag == "--transport") transport = value;
    else if (flag == "--job-token-file") job_token_file = value;
    else if (flag == "--interface") interface = value;
    else if (flag == "--checkpoint") checkpoint.folder = value;
    else if (flag == "--every") checkpoint.every = static_cast<std::uint64_t>(number(1, any));
    else if (flag == "--keep") checkpoint.keep = static_cast<int>(number(1));
    else see.set(flag, value);
  }
};

}  // namespace replicator
