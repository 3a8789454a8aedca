// SPDX-License-Identifier: Apache-2.0
// The folders of the programs and scripts that tests run; ctest sets them.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace replicator::test {

inline std::string folder_of(const char* variable) {
  const char* folder = std::getenv(variable);
  if (!folder) throw std::runtime_error{std::string{variable} + " is not set: run this by ctest"};
  return folder;
}

// Paths of a program or script.
inline std::string example(const std::string& name) { return folder_of("REPLICATOR_EXAMPLES") + "/" + name; }
inline std::string script(const std::string& name) { return folder_of("REPLICATOR_SCRIPTS") + "/" + name; }
inline std::string test_program(const std::string& name) { return folder_of("REPLICATOR_TEST_PROGRAMS") + "/" + name; }

}  // namespace replicator::test
