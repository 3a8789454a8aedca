// SPDX-License-Identifier: Apache-2.0
// ResNet-18 learns what a linear classifier on the same synthetic pictures cannot (tests/input/test_synthetic.cpp).
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include "../support/programs.hpp"

namespace test_learning {

using namespace replicator;

TEST_CASE("ResNet-18 on 8 replicas reaches 90 % validation accuracy on the synthetic pictures within 300 steps") {
  const char* examples = std::getenv("REPLICATOR_EXAMPLES");
  if (!examples) throw std::runtime_error{"REPLICATOR_EXAMPLES is not set: run this by ctest"};
  const auto pictures = std::filesystem::temp_directory_path() / ("replicator_learning_" + std::to_string(::getpid()));
  const auto result = test::run_program(std::string{examples} + "/resnet50 --depth 18 --image-size 32 --replicas 8 --devices cpu:0-1 " +
                                        "--global-batch 64 --steps 200 --seed 7 --synthetic-dir " + pictures.string());
  std::filesystem::remove_all(pictures);
  INFO(result.text);
  CHECK(result.exit_code == 0);
  const auto accuracy = test::line_of(result.text, "validation after step 200: top-1 ");  // "97.5 %"
  REQUIRE(!accuracy.empty());
  CHECK(std::stod(accuracy) >= 90);
}

}  // namespace test_learning
