// SPDX-License-Identifier: Apache-2.0
// The example of collectives alone: the same digits on any number of processes.
#include <catch2/catch.hpp>

#include <string>

#include "examples.hpp"

namespace test_raw_allreduce {

namespace test = replicator::test;

TEST_CASE("raw_allreduce prints the same digits as one, two and three processes, and finds the line") {
  const auto command = test::example("raw_allreduce") + " --replicas 5";
  const auto alone = test::run_program(command);
  INFO(alone.text);
  REQUIRE(alone.exit_code == 0);
  const auto last = test::line_of(alone.text, "step 50: ");
  CHECK_THAT(last, Catch::Contains("y = 3.0") || Catch::Contains("y = 2.9"));
  for (const int count : {2, 3}) {
    const auto results = test::run_as_processes(count, command);
    INFO(test::describe(results));
    for (const auto& result : results) CHECK(result.exit_code == 0);
    CHECK(test::line_of(results[0].text, "step 50: ") == last);
  }
}

}  // namespace test_raw_allreduce
