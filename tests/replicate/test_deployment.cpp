// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <initializer_list>
#include <vector>

#include <replicator/engine/require_valid.hpp>

#include "deployments.hpp"

namespace test_deployment {

using namespace replicator;
using namespace replicator::detail;

namespace {
Deployment parsed(std::initializer_list<const char*> arguments) {
  return Deployment::from(std::vector<const char*>{arguments});
}
std::string error_of(std::initializer_list<const char*> arguments) {
  return test::error_of([&] { parsed(arguments); });
}
std::string devices(const char* list) {
  std::string text;
  for (const auto& device : parsed({"--devices", list}).devices) text += (text.empty() ? "" : " ") + device.text();
  return text;
}
}  // namespace

TEST_CASE("without arguments one replica runs on cpu:0") {
  const auto d = parsed({});
  CHECK(d.replicas == 1);
  CHECK(d.devices == std::vector<DeviceName>{{DeviceKind::cpu, 0}});
  CHECK(d.seed == 0);
  CHECK(d.threads_per_device == 1);
  CHECK(d.transport == "auto");
  CHECK(d.schedule == "auto");
  CHECK(d.kernel_choice == KernelChoice{});
}

TEST_CASE("what the libraries of kernels may do is written as its flags, and read again") {
  CHECK(KernelChoice{}.text() == "none of them");
  CHECK(KernelChoice{.fastest = true}.text() == "--fastest-kernels");
  CHECK(KernelChoice{.winograd = true}.text() == "--winograd");
  CHECK(KernelChoice{.tf32 = true, .row_major_images = true}.text() == "--tf32 --row-major-images");
  CHECK(KernelChoice{.fuse_convolutions = {.statistics = true, .epilogue = true}}.text() == "--fuse-convolutions statistics,epilogue");
  for (int bits = 0; bits < 128; ++bits) {
    const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
    const KernelChoice choice{bit(6), bit(0), bit(1), bit(2), {bit(3), bit(4), bit(5)}};
    CHECK(KernelChoice::from(choice.text()) == choice);
  }
}

TEST_CASE("every flag is taken, apart from its value or joined to it") {
  const auto d = parsed({"--replicas", "8", "--devices=cpu:0-1", "--seed", "18446744073", "--transport=ucx",
                         "--schedule", "naive", "--topology=links.json", "--link", "1GB/s,2us", "--threads-per-device", "2", "--bucket-bytes=64", "--deadline", "7",
                         "--recompute-bytes", "0", "--memory-limit=3GiB", "--input-threads=3", "--job-token-file=/run/token", "--insecure", "--interface", "eth1", "--elastic-arbiter=/shared",
                         "--connect-deadline", "9", "--regime", "async", "--staleness=7", "--sync-group", "4",
                         "--winograd", "--tf32", "--fastest-kernels", "--row-major-images", "--fuse-convolutions", "prologue,statistics"});
  CHECK(d.replicas == 8);
  CHECK(d.devices.size() == 2);
  CHECK(d.seed == 18446744073u);
  CHECK(d.transport == "ucx");
  CHECK(d.schedule == "naive");
  CHECK(d.topology == "links.json");
  CHECK(d.link == "1GB/s,2us");
  CHECK(d.threads_per_device == 2);
  CHECK(d.kernel_choice == KernelChoice{.winograd = true, .tf32 = true, .fastest = true, .row_major_images = true, .fuse_convolutions = {.statistics = true, .prologue = true}});
  CHECK(d.bucket_bytes == 64);
  CHECK(d.recompute_bytes == 0);
  CHECK(d.memory_limit == std::int64_t{3} << 30);
  CHECK(d.deadline == std::chrono::seconds{7});
  CHECK(d.connect_deadline == std::chrono::seconds{9});
  CHECK(d.input_threads == 3);
  CHECK(d.job_token_file == "/run/token");
  CHECK(d.insecure);
  CHECK(d.interface == "eth1");
  CHECK(d.elastic_arbiter == "/shared");
  CHECK(d.regime == Regime::asynchronous);
  CHECK(d.staleness == 7);
  CHECK(d.sync_group == 4);
  CHECK(d.remaining.empty());
}

TEST_CASE("a transport is one that there is, a switch takes no value, and devices have a limit") {
  CHECK(error_of({"--transport", "foo"}) == "--transport is \"foo\": it must be auto, shared_memory or ucx");
  CHECK(error_of({"--timing=yes"}) == "--timing takes no value: found --timing=yes");
  CHECK(parsed({"--devices", "cpu:0-4095"}).devices.size() == 4096);
  for (const char* many : {"cpu:0-4096", "cpu:0-2147483647", "cuda:0x2147483647"})
    CHECK(error_of({"--devices", many}) == "--devices has \"" + std::string{many} + "\": a process has at most 4096 devices");
}

TEST_CASE("convolutions are fused with what is named, or with all; another name is refused") {
  CHECK(parsed({"--fuse-convolutions", "epilogue"}).kernel_choice.fuse_convolutions == ConvolutionFusions{.epilogue = true});
  CHECK(parsed({"--fuse-convolutions=all"}).kernel_choice.fuse_convolutions == ConvolutionFusions{true, true, true});
  for (const char* wrong : {"relu", "statistics,", "all,prologue", ""})
    CHECK(error_of({"--fuse-convolutions", wrong}) ==
          "--fuse-convolutions is \"" + std::string{wrong} + "\": it must be all, or some of statistics, prologue and epilogue with commas between them");
}

TEST_CASE("sizes are given in bytes, KiB, MiB or GiB") {
  CHECK(parsed({"--memory-limit", "123456"}).memory_limit == 123456);
  CHECK(parsed({"--memory-limit", "12KiB"}).memory_limit == 12 << 10);
  CHECK(parsed({"--memory-limit", "512MiB"}).memory_limit == 512 << 20);
  for (const char* wrong : {"0", "-1", "GiB", "8GB", "9999999999999GiB", ""})
    CHECK(error_of({"--memory-limit", wrong}) ==
          "--memory-limit is \"" + std::string{wrong} + "\": it must be a whole number of bytes, KiB, MiB or GiB: 8GiB, 512MiB");
}

TEST_CASE("what is not the deployment's is left in order") {
  const auto d = parsed({"--depth", "18", "--replicas", "2", "photos", "--replicas-are-fun=1", "-x"});
  CHECK(d.replicas == 2);
  CHECK(d.remaining == std::vector<std::string>{"--depth", "18", "photos", "--replicas-are-fun=1", "-x"});
}

TEST_CASE("the program's name is no argument") {
  const char* const argv[] = {"--replicas", "--seed", "3"};
  CHECK(Deployment::from(3, argv).seed == 3);
  CHECK(Deployment::from(3, argv).remaining.empty());
  CHECK(Deployment::from(0, nullptr).replicas == 1);
}

TEST_CASE("serial puts all replicas on one device, and is refused beside devices") {
  CHECK(parsed({"--serial"}).devices.size() == 1);
  const auto refused = Catch::Contains("--serial and --devices were both given");
  CHECK_THROWS_WITH(parsed({"--devices", "cpu:0-3", "--serial"}), refused);
  CHECK_THROWS_WITH(parsed({"--serial", "--devices=cpu:0-3"}), refused);
}

TEST_CASE("devices are named one by one, by ranges, or both") {
  CHECK(devices("cpu:3") == "cpu:3");
  CHECK(devices("cpu:0-3") == "cpu:0 cpu:1 cpu:2 cpu:3");
  CHECK(devices("cuda:1,cuda:0") == "cuda:1 cuda:0");
  CHECK(devices("cpu:0-1,cpu:5") == "cpu:0 cpu:1 cpu:5");
}

TEST_CASE("devices that cannot be are refused in a sentence") {
  const auto bad = [](const std::string& item) {
    return "--devices has \"" + item +
           "\": name devices as cpu:0, cpu:0-3, cuda:0 or cuda:0x4 (one GPU as four), separated by commas";
  };
  CHECK(error_of({"--devices", "gpu:0"}) == bad("gpu:0"));
  CHECK(error_of({"--devices", "cpu"}) == bad("cpu"));
  CHECK(error_of({"--devices", "cpu:"}) == bad("cpu:"));
  CHECK(error_of({"--devices", "cpu:x"}) == bad("cpu:x"));
  CHECK(error_of({"--devices", "cpu:3-1"}) == bad("cpu:3-1"));
  CHECK(error_of({"--devices", "cpu:-1"}) == bad("cpu:-1"));
  CHECK(error_of({"--devices", "cpu:0,,cpu:1"}) == bad(""));
  CHECK(error_of({"--devices", "cpu:0,"}) == bad("cpu:0,"));
  CHECK(error_of({"--devices", "cpu:99999999999"}) == bad("cpu:99999999999"));
  CHECK(error_of({"--devices", "cpu:0-4000000000"}) == bad("cpu:0-4000000000"));
  CHECK(error_of({"--devices", ""}) == "--devices names no device: try cpu:0");
  CHECK(error_of({"--devices", "cpu:0-2,cpu:1"}) == "--devices names cpu:1 twice");
}

TEST_CASE("a deployment without devices is refused") {
  Deployment deployment;
  deployment.devices.clear();
  CHECK_THROWS_WITH(deployment.devices_per_replica(), "a deployment without devices was asked for: name at least one, as --devices cpu:0 does");
}

TEST_CASE("numbers that cannot be are refused in a sentence") {
  const auto must = [](const std::string& flag, const std::string& value, int lowest) {
    return flag + " is \"" + value + "\": it must be a whole number, at least " + std::to_string(lowest);
  };
  CHECK(error_of({"--replicas", "0"}) == must("--replicas", "0", 1));
  CHECK(error_of({"--replicas", "two"}) == must("--replicas", "two", 1));
  CHECK(error_of({"--replicas", "2.5"}) == must("--replicas", "2.5", 1));
  CHECK(error_of({"--replicas", ""}) == must("--replicas", "", 1));
  CHECK(error_of({"--replicas", "8 "}) == must("--replicas", "8 ", 1));
  CHECK(error_of({"--replicas", "99999999999999999999"}) == must("--replicas", "99999999999999999999", 1) + " and at most 2147483647");
  CHECK(error_of({"--seed", "99999999999999999999"}) == must("--seed", "99999999999999999999", 0) + " and at most 9223372036854775807");
  for (const char* flag : {"--replicas", "--threads-per-device", "--input-threads"})
    CHECK_THAT(error_of({flag, "4294967297"}), Catch::EndsWith(" and at most 2147483647"));
  CHECK(parsed({"--bucket-bytes", "4294967297"}).bucket_bytes == 4294967297);
  CHECK(error_of({"--seed", "-1"}) == must("--seed", "-1", 0));
  CHECK(error_of({"--bucket-bytes=0"}) == must("--bucket-bytes", "0", 1));
  CHECK(error_of({"--threads-per-device", "0"}) == must("--threads-per-device", "0", 1));
  CHECK(error_of({"--deadline", "-5"}) == must("--deadline", "-5", 0));
  CHECK(error_of({"--connect-deadline", "0"}) == must("--connect-deadline", "0", 1));
}

TEST_CASE("a deployment that a program fills in is refused as its flags would be") {
  const auto refused = [](auto fill) {
    return test::error_of([&] {
      Deployment deployment;
      fill(deployment);
      require_valid(deployment);
    });
  };
  using D = Deployment;
  const auto must = [](const std::string& what, const std::string& value, int lowest) {
    return what + " is \"" + value + "\": it must be a whole number, at least " + std::to_string(lowest);
  };
  CHECK(refused([](D&) {}) == "nothing");
  CHECK(refused([](D& d) { d.replicas = 0; }) == must("--replicas", "0", 1));
  CHECK(refused([](D& d) { d.logical_devices = 0; }) == must("--logical-devices", "0", 1));
  CHECK(refused([](D& d) { d.threads_per_device = 0; }) == must("--threads-per-device", "0", 1));
  CHECK(refused([](D& d) { d.bucket_bytes = -1; }) == must("--bucket-bytes", "-1", 1));
  CHECK(refused([](D& d) { d.recompute_bytes = -1; }) == must("--recompute-bytes", "-1", 0));
  CHECK(refused([](D& d) { d.memory_limit = -1; }) == must("--memory-limit", "-1", 0));
  CHECK(refused([](D& d) { d.deadline = std::chrono::seconds{-1}; }) == must("--deadline", "-1", 0));
  CHECK(refused([](D& d) { d.connect_deadline = std::chrono::seconds{0}; }) == must("--connect-deadline", "0", 1));
  CHECK(refused([](D& d) { d.late = std::chrono::milliseconds{-1}; }) == must("Deployment::late", "-1", 0));
  // A clock could not count to their end: without end is 0.
  CHECK(refused([](D& d) { d.deadline = std::chrono::seconds::max(); }) == error_of({"--deadline", "9223372036854775807"}));
  CHECK(refused([](D& d) { d.connect_deadline = std::chrono::seconds::max(); }) == error_of({"--connect-deadline", "9223372036854775807"}));
  CHECK_THAT(refused([](D& d) { d.late = std::chrono::milliseconds::max(); }), Catch::EndsWith("at least 0 and at most 2147483647000"));
  CHECK(refused([](D& d) { d.input_threads = -1; }) == must("--input-threads", "-1", 0));
  CHECK(refused([](D& d) { d.checkpoint.keep = 0; }) == must("--keep", "0", 1));
  CHECK(refused([](D& d) { d.transport = "foo"; }) == error_of({"--transport", "foo"}));
  CHECK(refused([](D& d) { d.link = "12.5,2us"; }) == "--link has \"12.5\": say 12.5GB/s, 100MB/s or 10Gbit/s");
  CHECK(refused([](D& d) { d.link = "1GB/s,2us", d.topology = "links.json"; }) ==
        "--link and --topology both say what connects the devices: give one of them");
  CHECK(refused([](D& d) { d.devices[0].index = -3; }) == "--devices has \"cpu:-3\": devices are counted from 0, as in cpu:0");
  CHECK(refused([](D& d) { d.devices.push_back(d.devices[0]); }) == "--devices names cpu:0 twice");
  CHECK(refused([](D& d) { d.see.trace_steps = {9, 2}; }) == error_of({"--trace-steps", "9:2"}));
  CHECK(refused([](D& d) { d.see.trace_steps = {0, 2000}; }) == error_of({"--trace-steps", "0:2000"}));
  CHECK(refused([](D& d) { d.see.trace_steps = {3, 5}; }) ==
        "--trace-steps was given without --trace or --timing, so nothing would be timed: give one of them too");
  CHECK(refused([](D& d) { d.see.record = RecordOptions{0, {9, 2}, "file"}; }) == error_of({"--record", "replica=0,steps=9:2,file=file"}));
  CHECK(refused([](D& d) { d.see.record = RecordOptions{-1, {2, 9}, "file"}; }) == must("--record: replica", "-1", 0));
}

TEST_CASE("a flag without its value says so") { CHECK(error_of({"--replicas"}) == "--replicas needs a value"); }

TEST_CASE("the help names every flag") {
  for (const char* flag : {"--replicas", "--devices", "--serial", "--seed", "--transport", "--schedule", "--topology", "--link",
                           "--threads-per-device", "--bucket-bytes", "--deadline", "--connect-deadline", "--input-threads", "--regime", "--staleness",
                           "--sync-group"})
    CHECK(Deployment::help().find(flag) != std::string::npos);
}

}  // namespace test_deployment
