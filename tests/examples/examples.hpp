// SPDX-License-Identifier: Apache-2.0
// Reads the results that the programs of examples/ print.
#pragma once

#include <catch2/catch.hpp>

#include <string>

#include "../support/folders.hpp"
#include "../support/programs.hpp"

namespace replicator::test {

// The 64 digits behind `start` in what the command, which must end well, has printed.
inline std::string digits_of(const std::string& command, const std::string& start = "weights sha256: ") {
  const auto result = run_program(command);
  INFO(command + "\n" + result.text);
  CHECK(result.exit_code == 0);
  const auto found = line_of(result.text, start);
  CHECK(found.size() == 64);
  return found;
}

}  // namespace replicator::test
