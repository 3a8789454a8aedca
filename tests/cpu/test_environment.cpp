// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/cpu/environment.hpp>

namespace test_environment {

using namespace replicator;
using namespace replicator::detail;

TEST_CASE("a kernel environment keeps denormals where a library flushes them, and gives back what was set") {
  const FloatingPointMode before = floating_point_mode(), flushes = before | flush_denormals;
  const int threads = omp_get_max_threads();
  set_floating_point_mode(flushes);
  CHECK_THROWS_AS(cpu::self_test(), BuildError);
  {
    const cpu::KernelEnvironment environment{3};
    CHECK_NOTHROW(cpu::self_test());
    CHECK(omp_get_max_threads() == 3);
  }
  CHECK(omp_get_max_threads() == threads);
  CHECK((floating_point_mode() & flush_denormals) == flush_denormals);
  set_floating_point_mode(before);
}

}  // namespace test_environment
