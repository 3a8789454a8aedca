// SPDX-License-Identifier: Apache-2.0
// A table of a Replicator's variables, for people to read.
// <replicator/replicator.hpp>, or variable_table.hpp, brings the code.
#pragma once

#include <string>

#include <replicator/replicate/replicator.hpp>

namespace replicator {

// One line for each variable that the steps of `repl` have declared, in the order of names: its type, its elements, whether
// minimize() trains it, its kind, and the line that declares it, which for a layer is the line of the layer's call. The last
// line has the sums.
//   fc.bias      float32[10]       10   trained   mirrored   train.cpp:12
template <class = void>
std::string summary(const Replicator& repl);

}  // namespace replicator
