// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/onednn/onednn.hpp>
#include <replicator/engine/program_identity.hpp>

#include "../support/programs.hpp"

namespace test_onednn_library {

using namespace replicator;
using namespace replicator::detail;

TEST_CASE("oneDNN says its version, and an environment by which it chooses other kernels") {
  const auto results = test::run_as_job(3, [](int rank) {  // it reads the environment once
    if (rank == 1) ::setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 1);
    if (rank == 2) ::setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16", 1);
    return kernel_library(DeviceKind::cpu);
  });
  INFO(test::describe(results));
  const auto& version = *dnnl_version();
  CHECK_THAT(results[0].text, Catch::StartsWith("oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + ".") &&
                                  Catch::Contains(" for ") && Catch::Contains("floating-point mode "));
  if (instruction_set() != "baseline") CHECK(results[1].text != results[0].text);
  CHECK(results[2].text != results[0].text);
}

}  // namespace test_onednn_library
