// SPDX-License-Identifier: Apache-2.0
// The flags of a Deployment: one table from which command lines are read and --help is written.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/nearest_word.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/devices/convolution_fusions.hpp>
#include <replicator/replicate/parse_devices.hpp>
#include <replicator/replicate/record_options.hpp>
#include <replicator/replicate/regime.hpp>
#include <replicator/runtime/see/trace_window.hpp>

namespace replicator::detail {

using Text = std::string_view;

// One flag of the deployment type D. An entry without a name is a heading of the help.
template <class D>
struct Flag {
  Text name;   // "--replicas"
  Text value;  // placeholder of the value in the help: "N"; empty for a switch
  Text help;
  void (*set)(D& deployment, Text flag, Text value) = nullptr;  // throws BuildError for an invalid value

  bool is_switch() const { return value.empty(); }
};

constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();

inline std::string transport_name(Text flag, Text value) {
  for (const Text known : {"auto", "shared_memory", "ucx"})
    if (value == known) return std::string{value};
  throw BuildError{std::string{flag} + " is \"" + std::string{value} + "\": it must be auto, shared_memory or ucx"};
}

inline TraceWindow trace_steps(Text flag, Text value) {
  const auto window = parse_steps(flag, value);
  if (window.steps() > most_timed_steps)
    throw BuildError{std::string{flag} + " is \"" + std::string{value} + "\": room for the times of " + std::to_string(window.steps()) +
                     " steps would be set aside; take at most " + std::to_string(most_timed_steps)};
  return window;
}

template <class D>
inline constexpr Flag<D> flags_of[] = {
    {"", "", "Where it runs (the result keeps its bits, except under --replicas, --seed, --regime and flags marked \"changes bits\"):"},
    {"--replicas", "N", "replicas over all hosts (1)",
     [](D& d, Text flag, Text value) { d.replicas = static_cast<int>(parse_number(flag, value, 1)); }},
    {"--devices", "LIST", "devices of each process: cpu:0, cpu:0-3 (threads, pinned to no core), cuda:0,cuda:1, cuda:0x4 (cpu:0)",
     [](D& d, Text, Text value) { d.devices = parse_devices(value); }},
    {"--logical-devices", "N", "devices over which replica.logical_device(i) spreads each replica (1)",
     [](D& d, Text flag, Text value) { d.logical_devices = static_cast<int>(parse_number(flag, value, 1)); }},
    {"--serial", "", "runs all replicas in the calling thread, as --devices cpu:0 does", [](D& d, Text, Text) { d.devices = {DeviceName{}}; }},
    {"--seed", "N", "seed of initial values, random numbers and data (0)",
     [](D& d, Text flag, Text value) { d.seed = static_cast<std::uint64_t>(parse_number(flag, value, 0, any_number)); }},
    {"--transport", "NAME", "transport between processes: auto, shared_memory, ucx (auto)",
     [](D& d, Text flag, Text value) { d.transport = transport_name(flag, value); }},
    {"--schedule", "NAME",
     "algorithm of all_reduces: auto, owner_computes, direct, ring, halving_doubling, binary_tree,\n"
     "naive, hierarchical or hierarchical:4x2 (auto; refused where it would change a bit)",
     [](D& d, Text, Text value) { d.schedule = value; }},
    {"--topology", "FILE", "chooses schedules by the links' latency and bandwidth in FILE; if FILE is missing, measures and writes them",
     [](D& d, Text, Text value) { d.topology = value; }},
    {"--link", "BANDWIDTH,LATENCY", "the same by these figures of the links between processes, 12.5GB/s,2us; measures nothing",
     [](D& d, Text, Text value) { d.link = value; }},
    {"--regime", "NAME", "sync, or async: replicas do not wait for each other, and bits are not promised (sync; docs/asynchronous.md)",
     [](D& d, Text flag, Text value) { d.regime = parse_regime(flag, value); }},
    {"--staleness", "N", "async: a gradient misses at most N updates of other replicas (any number)",
     [](D& d, Text flag, Text value) { d.staleness = parse_number(flag, value, 0, any_number); }},
    {"--sync-group", "N", "async: groups of N consecutive replicas are synchronous with each other (1)",
     [](D& d, Text flag, Text value) { d.sync_group = static_cast<int>(parse_number(flag, value, 1)); }},
    {"--threads-per-device", "N", "OpenMP threads of a device's kernels (1; changes bits)",
     [](D& d, Text flag, Text value) { d.threads_per_device = static_cast<int>(parse_number(flag, value, 1)); }},
    {"--winograd", "", "uses Winograd's algorithm for 3x3 float32 convolutions on CPUs where it is faster; it rounds more (no; changes bits)",
     [](D& d, Text, Text) { d.kernel_choice.winograd = true; }},
    {"--tf32", "", "float32 products and convolutions on GPUs use 10 fraction bits of their factors (no; changes bits)",
     [](D& d, Text, Text) { d.kernel_choice.tf32 = true; }},
    {"--fastest-kernels", "", "kernels that the GPU libraries rate fastest; changes bits from run to run (no)",
     [](D& d, Text, Text) { d.kernel_choice.fastest = true; }},
    {"--row-major-images", "", "convolutions on GPUs in NCHW, not in NHWC, to compare them (no; changes bits)",
     [](D& d, Text, Text) { d.kernel_choice.row_major_images = true; }},
    {"--fuse-convolutions", "LIST",
     "operations fused into convolutions: statistics (sums of their results for batch norms), prologue (scale, bias\n"
     "and ReLU before them), epilogue (the same and residual sums behind them), or all (none; changes bits)",
     [](D& d, Text flag, Text value) { d.kernel_choice.fuse_convolutions = ConvolutionFusions::parse(flag, value); }},
    {"--bucket-bytes", "N", "merges small all_reduces up to this size (4194304)",
     [](D& d, Text flag, Text value) { d.bucket_bytes = parse_number(flag, value, 1, any_number); }},
    {"--recompute-bytes", "N", "recomputes activations of at least this size in the backward pass where that is cheap (65536)",
     [](D& d, Text flag, Text value) { d.recompute_bytes = parse_number(flag, value, 0, any_number); }},
    {"--memory-limit", "SIZE", "memory that a step may need on each device: 8GiB, 512MiB or bytes (the device's memory)",
     [](D& d, Text flag, Text value) { d.memory_limit = parse_bytes(flag, value); }},
    {"--no-capture", "", "launches GPU kernels one by one in every step, without captured CUDA graphs",
     [](D& d, Text, Text) { d.capture = false; }},
    {"--deadline", "SECONDS", "limit of every wait on another device; 0: no limit (300)",
     [](D& d, Text flag, Text value) { d.deadline = std::chrono::seconds{parse_number(flag, value, 0)}; }},
    {"--connect-deadline", "SECONDS", "limit of the rendezvous of the job's processes (60)",
     [](D& d, Text flag, Text value) { d.connect_deadline = std::chrono::seconds{parse_number(flag, value, 1)}; }},
    {"--elastic", "", "when a process dies or stops, the others take over its replicas and repeat the step, with the same bits",
     [](D& d, Text, Text) { d.elastic = true; }},
    {"--elastic-arbiter", "WHERE",
     "with --elastic: a folder that all hosts share, or an etcd (http://10.0.0.1:2379); it decides which part goes on, also of two\n"
     "equal ones. An etcd also tells processes where the job is, so MASTER_ADDR and MASTER_PORT are not needed",
     [](D& d, Text, Text value) { d.elastic_arbiter = value; }},
    {"--job-token-file", "FILE", "file with a secret; only processes that have it can meet (the variable REPLICATOR_JOB_TOKEN, if set)",
     [](D& d, Text, Text value) { d.job_token_file = value; }},
    {"--insecure", "", "without such a secret, lets processes of other machines take part, and whoever else reaches process 0 (REPLICATOR_INSECURE=1)",
     [](D& d, Text, Text) { d.insecure = true; }},
    {"--interface", "NAME", "the only network interface to use, by name or address (REPLICATOR_INTERFACE, if set)",
     [](D& d, Text, Text value) { d.interface = value; }},
    {"--input-threads", "N", "threads that decode input (0: one per core)",
     [](D& d, Text flag, Text value) { d.input_threads = static_cast<int>(parse_number(flag, value, 0)); }},

    {"", "", "Checkpoints:"},
    {"--checkpoint", "DIR", "folder for the whole state; all processes must be able to read it. A program may write a checkpoint too",
     [](D& d, Text, Text value) { d.checkpoint.folder = value; }},
    {"--every", "N", "writes a checkpoint after every N steps (only when the program asks)",
     [](D& d, Text flag, Text value) { d.checkpoint.every = static_cast<std::uint64_t>(parse_number(flag, value, 1, any_number)); }},
    {"--keep", "N", "number of checkpoints that stay (3)",
     [](D& d, Text flag, Text value) { d.checkpoint.keep = static_cast<int>(parse_number(flag, value, 1)); }},
    {"--resume", "", "continues from the newest checkpoint, on any placement; starts from the beginning if there is none",
     [](D& d, Text, Text) { d.checkpoint.resume = true; }},

    {"", "", "Reports (docs/seeing.md):"},
    {"--trace", "FILE", "timeline of kernels, collectives and input, for ui.perfetto.dev",
     [](D& d, Text, Text value) { d.see.trace = value; }},
    {"--trace-steps", "A:B", "times the steps from A to B - 1, at most 1000 (1:11)",
     [](D& d, Text flag, Text value) { d.see.trace_steps = trace_steps(flag, value); }},
    {"--timing", "", "times those steps for explain()", [](D& d, Text, Text) { d.see.timing = true; }},
    {"--dot", "FILE", "graphs of replicas for Graphviz; a second file has the resolved graphs", [](D& d, Text, Text value) { d.see.dot = value; }},
    {"--plan", "FILE", "the program of each device, as JSON", [](D& d, Text, Text value) { d.see.plan = value; }},
    {"--find-nan", "", "stops at the first NaN or infinity that a kernel or a sum over replicas makes (slow)",
     [](D& d, Text, Text) { d.see.find_nan = true; }},
    {"--skew", "", "lists at the end the devices that came late to collectives", [](D& d, Text, Text) { d.see.skew = true; }},
    {"--hang-report", "FILE", "where each device stands when a wait fails or a signal asks; also goes to stderr",
     [](D& d, Text, Text value) { d.see.hang_report = value; }},
    {"--record", "replica=N,steps=A:B[,file=F]", "records input, collective results and variables of replica N in these steps, into F (replicaN.safetensors)",
     [](D& d, Text, Text value) { d.see.record = RecordOptions::parse(value); }},
    {"--replay", "F", "runs the recorded steps of that replica alone and compares the bits; sets --replicas, --seed and devices",
     [](D& d, Text, Text value) { d.see.replay = value; }},
    {"--check-drift", "N", "every N steps, compares the bits of mirrored variables between all devices",
     [](D& d, Text flag, Text value) { d.see.check_drift = static_cast<std::uint64_t>(parse_number(flag, value, 1, any_number)); }},
    {"--audit", "N",
     "computes every N-th step a second time on other devices, and compares all bits before a variable changes\n"
     "(docs/audit.md; needs two devices in the job)",
     [](D& d, Text flag, Text value) { d.see.audit = static_cast<std::uint64_t>(parse_number(flag, value, 1, any_number)); }},
    {"", "", "Several processes: start them with mpirun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."},
};

// The deployment that the flags among the arguments describe. All other arguments go to its `remaining`, in order.
template <class D>
D take_flags(std::span<const char* const> arguments) {
  D deployment;
  bool serial = false, devices = false;
  const auto find = [](Text name) -> const Flag<D>* {
    for (const auto& flag : flags_of<D>)
      if (!flag.name.empty() && flag.name == name) return &flag;
    return nullptr;
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Text argument = arguments[i];
    const auto equals = argument.starts_with("--") ? argument.find('=') : Text::npos;
    const Text name = argument.substr(0, equals);
    const auto* flag = find(name);
    if (!flag) {
      deployment.remaining.emplace_back(argument);
      continue;
    }
    const bool joined = equals != Text::npos;
    if (flag->is_switch() && joined) throw BuildError{std::string{name} + " takes no value: found " + std::string{argument}};
    if (!flag->is_switch() && !joined && i + 1 == arguments.size()) throw BuildError{std::string{name} + " needs a value"};
    serial = serial || name == "--serial";
    devices = devices || name == "--devices";
    flag->set(deployment, name, flag->is_switch() ? Text{} : joined ? argument.substr(equals + 1)
                                                                    : Text{arguments[++i]});
  }
  if (serial && devices) throw BuildError{"--serial and --devices were both given: --serial means one device, cpu:0, so give one of them"};
  return deployment;
}

template <class D>
std::string help_of_flags() {
  constexpr std::size_t column = 26;
  std::string text;
  for (const auto& flag : flags_of<D>) {
    if (flag.name.empty()) {
      text += std::string{flag.help} + "\n";
      continue;
    }
    std::string line = "  " + std::string{flag.name} + (flag.is_switch() ? "" : " ") + std::string{flag.value};
    line.append(line.size() + 2 <= column ? column - line.size() : 2, ' ');
    for (const char letter : flag.help) {
      line += letter;
      if (letter == '\n') line.append(column, ' ');
    }
    text += line + "\n";
  }
  return text;
}

// For programs without flags of their own: prints the help and ends the program where --help or -h is given. Throws
// BuildError for an unknown flag, with the most similar known one.
template <class D>
D take_only_flags(std::span<const char* const> arguments) {
  for (const Text argument : arguments)
    if (argument == "--help" || argument == "-h") {
      std::fputs(help_of_flags<D>().c_str(), stdout);
      std::exit(std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : 1);
    }
  D deployment = take_flags<D>(arguments);
  if (deployment.remaining.empty()) return deployment;
  const Text unknown = Text{deployment.remaining[0]}.substr(0, deployment.remaining[0].find('='));
  std::vector<Text> names;
  for (const auto& flag : flags_of<D>)
    if (!flag.name.empty()) names.push_back(flag.name);
  const auto meant = nearest_word(unknown, names);
  throw BuildError{(unknown.starts_with('-') ? "this program has no flag " : "this program takes no argument ") + std::string{unknown} + ": " +
                   (meant.empty() ? std::string{} : "was " + std::string{meant} + " meant? ") + "--help lists all"};
}

}  // namespace replicator::detail
