// SPDX-License-Identifier: Apache-2.0
// ResNet-18 learns synthetic pictures on which a linear classifier fails (tests/input/test_synthetic.cpp).
#include <catch2/catch.hpp>

#include <string>

#include "../input/temporary_folder.hpp"
#include "examples.hpp"

namespace test_learning {

using namespace replicator;

TEST_CASE("ResNet-18 on 8 replicas reaches 90 % validation accuracy on the synthetic pictures within 200 steps") {
  const TemporaryFolder folder;
  const auto result = test::run_program(test::example("resnet50") + " --depth 18 --image-size 64 --replicas 8 --devices cpu:0-1 " +
                                        "--global-batch 64 --steps 200 --optimizer adamw --learning-rate 0.002 --seed 7 --synthetic-dir " + folder.path() + "/pictures");
  INFO(result.text);
  CHECK(result.exit_code == 0);
  const auto accuracy = test::line_of(result.text, "validation after step 200: top-1 ");  // "97.5 %"
  REQUIRE(!accuracy.empty());
  CHECK(std::stod(accuracy) >= 90);
}

}  // namespace test_learning
