// SPDX-License-Identifier: Apache-2.0
// ResNet-18 on JPEG files: one sha256 of all weights on any placement of its replicas.
#include <catch2/catch.hpp>

#include <filesystem>
#include <string>

#include <replicator/data/pictures/jpeg_decoder.hpp>
#include <replicator/data/worker_threads.hpp>

#include "../../examples/support/synthetic.hpp"
#include "../input/temporary_folder.hpp"
#include "examples.hpp"

namespace test_resnet50 {

using namespace replicator;

namespace {

// 32 pictures of two classes in a folder of the test's own.
struct Pictures {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path() + "/pictures";
  Pictures() { example::write_synthetic(folder.string(), {.classes = 2, .train = 32, .val = 2, .size = 32, .seed = 1}); }
};

std::string command(const Pictures& pictures, const std::string& flags) {
  return test::example("resnet50") + " --depth 18 --image-size 32 --replicas 8 --global-batch 16 --steps 2 --seed 7 --data " +
         (pictures.folder / "train").string() + " " + flags;
}

std::string weights(const Pictures& pictures, const std::string& flags) { return test::digits_of(command(pictures, flags)); }

void check_processes(const Pictures& pictures, int count, const std::string& flags, const std::string& expected) {
  const auto results = test::run_as_processes(count, command(pictures, flags));
  INFO(flags + "\n" + test::describe(results));
  for (const auto& result : results) CHECK(result.exit_code == 0);
  CHECK(test::line_of(results[0].text, "weights sha256: ") == expected);
}

}  // namespace

TEST_CASE("resnet50 prints one sha256 for devices, processes and buckets of any number and size") {
  const Pictures pictures;
  const auto serial = weights(pictures, "--serial");
  for (const char* devices : {"cpu:0-1", "cpu:0-4 --bucket-bytes 1", "cpu:0-7 --bucket-bytes 100000",
                              "cpu:0-3 --logical-devices 2"})
    CHECK(weights(pictures, std::string{"--devices "} + devices) == serial);
  for (const int count : {2, 3}) check_processes(pictures, count, "--devices cpu:0", serial);
  CHECK(weights(pictures, "--serial --seed 8") != serial);
}

TEST_CASE("photos learns to tell two classes of pictures in bfloat16, with one digest on one device and on two") {
  const Pictures pictures;
  const auto command = test::example("custom/photos ") + (pictures.folder / "train").string() + " --replicas 4 --devices ";
  const auto serial = test::run_program(command + "cpu:0"), both = test::run_program(command + "cpu:0-1");
  INFO(serial.text);
  CHECK(serial.exit_code == 0);
  CHECK(std::stod(test::line_of(serial.text, "40: loss ")) < 0.5);  // chance: 0.69
  CHECK(test::line_of(serial.text, "digest: ").size() == 64);
  CHECK(both.text == serial.text);
}

TEST_CASE("resnet50 with batch norm over all replicas prints one sha256 too") {
  const Pictures pictures;
  const std::string across = "--cross-replica-batch-norm ";
  const auto serial = weights(pictures, across + "--serial");
  CHECK(weights(pictures, across + "--devices cpu:0-2") == serial);
  check_processes(pictures, 2, across + "--devices cpu:0", serial);
  CHECK(weights(pictures, "--serial") != serial);
}

TEST_CASE("resnet50 that is resumed by another number of devices or processes prints the sha256 of the run that was never stopped") {
  const Pictures pictures;
  const auto kept = [&](const char* name) { return "--every 1 --checkpoint " + (pictures.folder / name).string(); };
  const auto whole = weights(pictures, "--devices cpu:0-1 " + kept("a"));
  CHECK(whole == weights(pictures, "--serial"));
  const auto file = [](int step) { return "step-000000000" + std::to_string(step) + ".safetensors"; };
  std::filesystem::remove(pictures.folder / "a" / file(2));
  for (const char* name : {"b", "c"}) std::filesystem::copy(pictures.folder / "a", pictures.folder / name);
  CHECK(weights(pictures, "--resume --devices cpu:0-2 " + kept("b")) == whole);
  CHECK(std::filesystem::exists(pictures.folder / "b" / file(2)));
  CHECK(weights(pictures, "--resume --serial " + kept("b")) == whole);  // nothing is left to do
  check_processes(pictures, 2, "--resume --devices cpu:0 " + kept("c"), whole);
}

TEST_CASE("the help of resnet50 shows its own flags in the columns of the deployment's flags") {
  const auto help = test::run_program(test::example("resnet50") + " --help");
  CHECK(help.exit_code == 0);
  CHECK_THAT(help.text, Catch::Contains("\n  --depth N               layers of the ResNet (version 1.5): 18, 34, 50, 101, 152 (50)\n"));
  CHECK_THAT(help.text, Catch::Contains("\n  --replicas N            replicas over all hosts (1)\n"));
}

TEST_CASE("resnet50 names a damaged picture and an empty folder, and exits with 1") {
  const Pictures pictures;
  const auto first_in = [](const std::filesystem::path& folder) { return (*std::filesystem::directory_iterator{folder}).path(); };
  const auto file = first_in(first_in(pictures.folder / "train"));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  const auto damaged = test::run_program(command(pictures, "--serial"));
  CHECK(damaged.exit_code == 1);
  CHECK_THAT(damaged.text, Catch::Contains(file.filename().string()));
  std::filesystem::remove_all(pictures.folder / "train");
  std::filesystem::create_directory(pictures.folder / "train");
  const auto empty = test::run_program(command(pictures, "--serial"));
  CHECK(empty.exit_code == 1);
  CHECK_THAT(empty.text, Catch::Contains("train"));
}

}  // namespace test_resnet50
