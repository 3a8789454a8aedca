// SPDX-License-Identifier: Apache-2.0
// The code of weights.hpp: loads and saves variables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <set>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/nearest_word.hpp>
#include <replicator/io/safetensors_file.hpp>
#include <replicator/replicate/weights.hpp>

namespace replicator {

namespace detail {

// The common prefix of the names in a scope.
inline std::string scope_start(const std::string& scope) { return scope.empty() ? scope : scope + "."; }

// The network's own variables below a scope, without the scope's name. Leaves out the state of optimizers: the state of
// a variable w is named w/momentum, for instance.
inline std::vector<std::string> weight_names(const Replicator& repl, const std::string& start) {
  const auto all = repl.variables();
  const std::set<std::string_view> known{all.begin(), all.end()};
  const auto remembered = [&](const std::string& name) {
    const auto slash = name.rfind('/');
    return slash != std::string::npos && known.contains(std::string_view{name}.substr(0, slash));
  };
  std::vector<std::string> names;
  for (const auto& name : all)
    if (name.starts_with(start) && !remembered(name)) names.push_back(name.substr(start.size()));
  return names;
}

// Throws BuildError where no variable lies below the scope: it is misspelt, or no step was replicated yet.
inline void require_weights(const Replicator& repl, const std::string& call, const std::string& scope, const std::vector<std::string>& names) {
  if (!names.empty()) return;
  const auto all = repl.variables();
  if (all.empty()) throw BuildError{call + " found no variables: replicate() declares those of its step function, so call it first"};
  std::set<std::string_view> scopes;
  for (const std::string_view name : all)
    for (auto dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) scopes.insert(name.substr(0, dot));
  const auto nearest = nearest_word(scope, std::vector<std::string_view>{scopes.begin(), scopes.end()});
  throw BuildError{call + " found no variable below the scope \"" + scope + "\"" +
                   (nearest.empty() ? ": \"" + all.front() + "\" is one of those that there are" : ": was \"" + std::string{nearest} + "\" meant?")};
}

// Whether a moving average has begun: infinity everywhere means that it has not.
inline bool is_average(const AnyArray& value) {
  return visit_dtype(value.dtype(), [&]<class T>() {
    return std::any_of(value.as<T>().begin(), value.as<T>().end(), [](T one) { return static_cast<double>(one) != not_averaged; });
  });
}

// "3 missing: a, b, c"; shows at most six names.
inline void add_names(std::string& text, const std::vector<std::string>& names, const char* what) {
  if (names.empty()) return;
  text += (text.empty() ? "" : "; ") + std::to_string(names.size()) + " " + what + ": ";
  for (std::size_t i = 0; i < names.size() && i < 6; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 6) text += " and " + std::to_string(names.size() - 6) + " more";
}

}  // namespace detail

template <class>
void load_weights(Replicator& repl, const std::string& path, const LoadOptions& options, std::source_location where) {
  const auto file = io::read_safetensors(path);
  std::vector<std::string> missing, unexpected, others;
  std::vector<std::pair<const std::string*, const AnyArray*>> fitting;
  const auto start = detail::scope_start(options.scope);
  const auto names = detail::weight_names(repl, start);
  detail::require_weights(repl, "load_weights at " + Location{where}.text(), options.scope, names);
  for (const auto& name : names) {
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      if (options.strict && !name.ends_with("num_batches_tracked")) missing.push_back(name);
    } else if (const auto& type = repl.declaration(start + name).type; found->second.type() != type) {
      others.push_back(name + " (" + found->second.type().text() + " in the file, " + type.text() + " here)");
    } else {
      fitting.emplace_back(&name, &found->second);
    }
  }
  const std::set<std::string_view> known{names.begin(), names.end()};
  for (const auto& [name, tensor] : file.tensors)
    if (options.strict && !known.contains(name)) unexpected.push_back(name);
  std::string found;
  detail::add_names(found, missing, "missing");
  detail::add_names(found, unexpected, "unexpected");
  detail::add_names(found, others, "of another type");
  if (!found.empty())
    throw DataError{path + " does not hold the weights of this network: " + found +
                    ". Was it saved by another depth, number of classes or model? " +
                    (options.strict ? "Parts of a file are loaded with {.strict = false}" : "{.strict = false} leaves out what is missing, but types must fit")};
  if (fitting.empty()) {
    std::vector<std::string> held;
    for (const auto& [name, tensor] : file.tensors) held.push_back(name);
    detail::add_names(found, held, "in the file");
    detail::add_names(found, names, "in the network");
    throw DataError{path + " holds no tensor with the name of a variable" + (start.empty() ? "" : " below \"" + options.scope + "\"") + ": " + found +
                    ". Give the layers the names of the file; {.scope = ...} takes the network's variables below that scope, without its name"};
  }
  for (const auto& [name, tensor] : fitting) repl.set(start + *name, *tensor, where);
}

template <class>
void save_weights(const Replicator& repl, const std::string& path, const SaveOptions& options) {
  std::vector<io::NamedTensor> tensors;
  std::vector<std::string> local;
  bool averages = false;
  const auto start = detail::scope_start(options.scope);
  const auto all = repl.variables();
  const auto names = detail::weight_names(repl, start);
  detail::require_weights(repl, "save_weights of " + path, options.scope, names);
  for (const auto& name : names) {
    const auto average = start + name + std::string{detail::average_suffix};
    const bool averaged = options.averages && std::find(all.begin(), all.end(), average) != all.end() && detail::is_average(repl.value(average));
    averages = averages || averaged;
    const AnyArray& value = repl.value(averaged ? average : start + name);
    const auto& declared = repl.declaration(start + name);
    const bool own = declared.kind == VariableKind::replica_local && (declared.trainable || declared.left_out);  // a weight, not a statistic
    if (own && repl.replicas() > 1) local.push_back(name);
    tensors.push_back({name, value.type(), value.data()});
  }
  io::write_safetensors(path, std::move(tensors), {{"format", "pt"}});
  if (options.averages && !averages)
    std::fprintf(stderr,
                 "replicator: save_weights was asked for moving averages, but no step has kept any: %s holds the variables themselves. "
                 "Train with rp::nn::averaged(optimizer, 0.999)\n",
                 path.c_str());
  if (local.empty()) return;
  std::string text;
  detail::add_names(text, local, "replica-local variable(s)");
  std::fprintf(stderr, "replicator: %s holds the values of one replica for %s. A checkpoint keeps those of all replicas\n", path.c_str(), text.c_str());
}

}  // namespace replicator
