// SPDX-License-Identifier: Apache-2.0
// UnsharedVariables: finds variables that a step declares anew where it seems to mean those that an earlier step trains. An
// evaluation whose scope is misspelt would compute with first values, and nothing else would say so. The same holds for an
// evaluation that reads moving averages where no step keeps any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/nearest_word.hpp>
#include <replicator/graph/variable.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

class UnsharedVariables {
  using Declarations = std::map<std::string, VariableDeclaration>;

 public:
  // Returns a warning about a step, or an empty text, and remembers which variables it trains. `store`: the variables of the
  // earlier steps. A step that trains new variables is never warned of. Throws BuildError where a step reads moving averages, and
  // no step keeps any.
  std::string add(const Resolution& resolution, const VariableStore& store) {
    Declarations declared, trained, assigned;
    for (const auto& one : resolution.classes) {
      const auto& variables = one.graph.variables();
      for (const auto& variable : variables) declared.emplace(variable.name, variable);
      for (const auto& node : one.graph.nodes())
        if (const auto* assign = node.get<Assign>()) {
          const auto& variable = variables[assign->variable];
          (variable.trainable ? trained : assigned).emplace(variable.name, variable);
        }
    }
    require_averages(declared, assigned, store);
    std::string text;
    if (std::none_of(trained.begin(), trained.end(), [&](const auto& one) { return !store.contains(one.first); })) text = warning(declared, store);
    trained_.merge(trained);
    return text;
  }

 private:
  // Throws BuildError if this step reads averages of variables that earlier steps train, and all of them are new.
  void require_averages(const Declarations& declared, const Declarations& assigned, const VariableStore& store) const {
    const VariableDeclaration *none = nullptr, *of = nullptr;
    for (const auto& [name, variable] : declared) {
      if (!name.ends_with(average_suffix) || variable.initializer != Initializer::constant(not_averaged)) continue;
      if (store.contains(name) || assigned.contains(name)) return;
      const auto owner = trained_.find(name.substr(0, name.size() - average_suffix.size()));
      if (!none && owner != trained_.end()) none = &variable, of = &owner->second;
    }
    if (none)
      throw BuildError{"read_averages was asked to read \"" + of->name + "\" at " + none->where.text() + " as its moving average, and the step that trains it keeps none: train with " +
                       "rp::nn::averaged(optimizer, 0.999) in that step, or evaluate without read_averages"};
  }

  std::string warning(const Declarations& declared, const VariableStore& store) const {
    std::string first, meant;
    std::size_t others = 0;
    for (const auto& [name, variable] : declared) {
      if (!variable.trainable || store.contains(name)) continue;
      if (first.empty() && !(meant = similar(variable, declared)).empty()) first = name;
      else ++others;
    }
    if (first.empty()) return {};
    const auto& variable = declared.at(first);
    return "a later step declares \"" + first + "\" at " + variable.where.text() + (others == 0 ? "" : ", and " + std::to_string(others) + " more,") +
           " and does not train it. An earlier step trains \"" + meant + "\", also " + variable.type.text() +
           ", which this step does not use. If they are one variable, give both the same name and scope; otherwise declare \"" + first +
           "\" with {.trainable = false}";
  }

  // The trained variable of the same kind and type that this step does not use and whose name is like that of `variable`.
  std::string similar(const VariableDeclaration& variable, const Declarations& declared) const {
    std::vector<std::string_view> candidates;
    for (const auto& [name, earlier] : trained_) {
      if (earlier.kind != variable.kind || earlier.type != variable.type || declared.contains(name)) continue;
      if (within_scope(name) == within_scope(variable.name)) return name;
      candidates.push_back(name);
    }
    return std::string{nearest_word(variable.name, candidates)};
  }
  // The name without its first scope, if it has one.
  static std::string_view within_scope(std::string_view name) {
    const auto slash = name.find('/');
    return slash == std::string_view::npos ? name : name.substr(slash + 1);
  }

  Declarations trained_;
};

}  // namespace replicator::detail
