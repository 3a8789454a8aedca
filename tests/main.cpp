// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

// Refuses names with a colon behind column 70. Catch2 2 indents the lines of a failed test's name by that much. Where no room is
// left, it writes such lines without end.
int main(int argc, char** argv) {
  for (const auto& test : Catch::getRegistryHub().getTestCaseRegistry().getAllTests())
    if (const auto colon = test.name.find(": "); colon != std::string::npos && colon > 70) {
      std::fprintf(stderr, "the colon in the name of this test stands too far right: %s\n", test.name.c_str());
      return 2;
    }
  return Catch::Session().run(argc, argv);
}
