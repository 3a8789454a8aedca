// SPDX-License-Identifier: Apache-2.0
// The language model on tiny texts: one sha256 of all weights, and the same generated text, on any placement of its
// replicas.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include "../input/temporary_folder.hpp"
#include "examples.hpp"

namespace test_transformer {

using namespace replicator;

namespace {

std::string command(const std::string& flags) {
  return test::example("transformer") + " --replicas 4 --global-batch 8 --context 16 --width 16 --heads 2 --write 20 --seed 7 " + flags;
}

// What stands behind the bar that ends the prompt: the letters that the model wrote.
std::string written(const std::string& flags) {
  const auto result = test::run_program(command(flags));
  INFO(result.text);
  REQUIRE(result.exit_code == 0);
  const auto bar = result.text.find('|');
  REQUIRE(bar != std::string::npos);
  return result.text.substr(bar + 1);  // with the line of the weights
}

}  // namespace

TEST_CASE("transformer writes the same letters and prints one sha256 for one device, for two and for two processes") {
  const auto serial = written("--steps 6 --serial");
  CHECK(serial.size() > 20 + 64);
  CHECK(written("--steps 6 --devices cpu:0-1") == serial);
  const auto results = test::run_as_job(2, [&](int) { return test::run_program(command("--steps 6")).text; });
  INFO(test::describe(results));
  CHECK(results[0].text.find('|' + serial) != std::string::npos);
}

TEST_CASE("transformer that is resumed prints the sha256 of the run that was never stopped") {
  const TemporaryFolder kept;
  const auto flags = " --steps 5 --every 2 --checkpoint " + kept.path();
  const auto whole = test::digits_of(command("--serial" + flags));
  for (const char* file : {"/step-0000000004.safetensors", "/step-0000000005.safetensors"}) REQUIRE(std::filesystem::remove(kept.path() + file));
  CHECK(test::digits_of(command("--devices cpu:0-1 --resume" + flags)) == whole);
}

TEST_CASE("transformer learns what stands in a text, and refuses one that is too short") {
  const TemporaryFolder folder;
  const auto text = folder.path() + "/text";
  std::ofstream file{text};
  for (int i = 0; i < 200; ++i) file << "abcde ";
  file.close();
  const auto learned = written("--serial --steps 150 --dropout 0 --temperature 0.1 --text " + text);
  CHECK(learned.substr(0, 20) == "e abcde abcde abcde ");  // behind "abcde abcde abcd"

  std::ofstream{text} << "abcde";
  const auto refused = test::run_program(command("--serial --text " + text));
  CHECK(refused.exit_code == 1);
  CHECK(refused.text.find("/text has 5 letters: a context of 16 takes at least 180") != std::string::npos);
}

}  // namespace test_transformer
