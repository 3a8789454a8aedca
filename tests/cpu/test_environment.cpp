// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/cpu/environment.hpp>

namespace test_environment {

using namespace replicator;
using namespace replicator::detail;

TEST_CASE("a kernel environment keeps denormals where a library flushes them, and gives back what was set") {
  constexpr unsigned flush = 0x8000 | 0x0040;
  const unsigned before = __builtin_ia32_stmxcsr();
  const int threads = omp_get_max_threads();
  __builtin_ia32_ldmxcsr(before | flush);
  CHECK_THROWS_AS(cpu::self_test(), BuildError);
  {
    const cpu::KernelEnvironment environment{3};
    CHECK_NOTHROW(cpu::self_test());
    CHECK(omp_get_max_threads() == 3);
  }
  CHECK(omp_get_max_threads() == threads);
  CHECK((__builtin_ia32_stmxcsr() & flush) == flush);
  __builtin_ia32_ldmxcsr(before);
}

}  // namespace test_environment
