// SPDX-License-Identifier: Apache-2.0
// The agent for a few tiny steps: one sha256 of all weights on any placement of its replicas.
#include <catch2/catch.hpp>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>

#include <replicator/io/safetensors_file.hpp>
#include <replicator/rl/offscreen.hpp>

#include "../input/temporary_folder.hpp"
#include "examples.hpp"
#include "png_extents.hpp"

namespace test_d4pg {

using namespace replicator;

namespace {

const std::string few_features = " --global-batch 24 --environments 2 --warm-up 40 --steps 8 ";
const std::string few_pictures = " --pixels --task pendulum --global-batch 6 --environments 1 --warm-up 8 --steps 2 --evaluate-every 0 ";

std::string command(const std::string& flags, const std::string& size = few_features) {
  return test::example("d4pg") + " --replicas 3 --hidden 16,16 --atoms 11 --n-step 3 --target-period 3 --seed 7" + size + flags;
}

std::string weights(const std::string& flags, const std::string& size = few_features) { return test::digits_of(command(flags, size)); }

}  // namespace

TEST_CASE("d4pg in lockstep prints one sha256 on one device, two and two processes, with any threads, draws its curve and saves its networks") {
  const TemporaryFolder folder;
  const auto curve = folder.path() + "/curve.png", saved = folder.path() + "/d4pg.safetensors";
  const std::string lockstep = "--lockstep 3 ";
  const auto serial = weights(lockstep + "--serial --curve " + curve + " --save " + saved);
  CHECK(test::png_extents(curve) == Shape{400, 640});
  CHECK(io::read_safetensors(saved).tensors.contains("actor.action.weight"));
  CHECK(weights(lockstep + "--devices cpu:0") == serial);
  CHECK(weights(lockstep + "--devices cpu:0-1 --threads 2") == serial);
  const auto processes = test::run_as_processes(2, command(lockstep + "--devices cpu:0"));
  INFO(test::describe(processes));
  CHECK(test::line_of(processes[0].text, "weights sha256: ") == serial);
  CHECK(weights(lockstep + "--serial --noise 0.1") != serial);
}

TEST_CASE("d4pg with priorities and noise that follows itself prints one sha256 for one device and two") {
  const std::string flags = "--priority 0.6 --ornstein-uhlenbeck --lockstep 2 ";
  CHECK(weights(flags + "--serial") == weights(flags + "--devices cpu:0-1"));
}

TEST_CASE("d4pg that sees prints one sha256 for one device and two") {
  CHECK(weights("--serial", few_pictures) == weights("--devices cpu:0-1", few_pictures));
}

TEST_CASE("d4pg without lockstep learns as fast as it can") { weights("--lockstep 0 --devices cpu:0-1 --task pendulum"); }

TEST_CASE("d4pg makes no folder of checkpoints, which it cannot keep") {
  const TemporaryFolder folder;
  CHECK(test::run_program(command("--checkpoint " + folder.path() + "/kept")).exit_code == 1);
  CHECK(!std::filesystem::exists(folder.path() + "/kept"));
}

TEST_CASE("d4pg says at once what it cannot do") {
  const std::map<std::string, std::string> refused = {
      {"--checkpoint " + std::filesystem::temp_directory_path().string(), "d4pg: --checkpoint: environments and replays are not saved, so a run can only start anew"},
      {"--global-batch 25", "d4pg: a batch of 25 over all replicas was asked for, but 3 replicas do not divide it"},
      {"--global-batch 24 --curve /nowhere/curve.png", "d4pg: --curve: "}};
  for (const auto& [flags, sentence] : refused) {
    const auto result = test::run_program(command(flags, " --environments 2 "));
    INFO(flags + "\n" + result.text);
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.text, Catch::Contains(sentence));
  }
}

TEST_CASE("d4pg that is asked to stop draws its curve, saves its networks and says so") {
  const TemporaryFolder folder;
  const auto log = folder.path() + "/log", curve = folder.path() + "/curve.png", saved = folder.path() + "/d4pg.safetensors";
  const auto endless = command("--steps 100000000 --evaluate-every 4 --curve " + curve + " --save " + saved, " --warm-up 40 --global-batch 24 ");
  const auto result = test::run_program("( " + endless + " > " + log + " 2>&1 & for i in $(seq 1000); do grep -q 'step 4/' " + log +
                                        " && break; sleep 0.03; done; kill -TERM $!; wait $!; code=$?; cat " + log + "; exit $code )");
  INFO(result.text);
  CHECK(result.exit_code == 128 + SIGTERM);
  CHECK_THAT(result.text, Catch::Contains("d4pg: stopped by SIGTERM after step ") && Catch::Contains(saved + " has its networks"));
  CHECK(std::filesystem::exists(curve));
  CHECK(io::read_safetensors(saved).tensors.contains("actor.action.weight"));
}

}  // namespace test_d4pg
