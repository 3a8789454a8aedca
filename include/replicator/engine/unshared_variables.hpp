// SPDX-License-Identifier: Apache-2.0
// Finds variables that a later step declares anew where it seems to mean those of an earlier one. An evaluation whose scope is
// misspelt would compute with first values, and nothing else would say so.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include <replicator/graph/variable.hpp>
#include <replicator/resolve/resolve.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

// `store`: the variables of the earlier steps. The text is empty unless this step declares trainable variables that it does not
// assign, and leaves an earlier trainable variable of the same type alone.
inline std::string unshared_variables_text(const Resolution& resolution, const VariableStore& store) {
  std::map<std::string, const VariableDeclaration*> declared;
  std::set<std::string> assigned;
  for (const auto& one : resolution.classes) {
    for (const auto& variable : one.graph.variables()) declared.emplace(variable.name, &variable);
    for (const auto& node : one.graph.nodes())
      if (const auto* assign = node.get<Assign>()) assigned.insert(one.graph.variables()[assign->variable].name);
  }
  const auto left_alone = [&](const TensorType& type) {
    for (const auto& name : store.names())
      if (const auto& earlier = store.declaration(name); earlier.trainable && earlier.type == type && !declared.contains(name)) return name;
    return std::string{};
  };
  std::string first, similar;
  std::size_t others = 0;
  for (const auto& [name, variable] : declared) {
    if (!variable->trainable || store.contains(name) || assigned.contains(name)) continue;
    if (first.empty() && !(similar = left_alone(variable->type)).empty()) first = name;
    else ++others;
  }
  if (first.empty()) return {};
  const auto& variable = *declared[first];
  return "a later step declares \"" + first + "\" at " + variable.where.text() + (others == 0 ? "" : " and " + std::to_string(others) + " other variable(s)") +
         ", trains none of them, and does not use \"" + similar + "\" of an earlier step, which is " + variable.type.text() +
         " too: if both are meant to be one variable, declare them with the same name and scope";
}

}  // namespace replicator::detail
