// SPDX-License-Identifier: Apache-2.0
// Runs the graphs of all replicas side by side, node by node: collectives by their definition, other nodes by the
// evaluator.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <replicator/graph/gradients.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/agreement.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "differences.hpp"
#include "evaluate.hpp"

namespace replicator::test {

using namespace replicator::detail;

// The values that replica r receives if replica i contributes parts[i].
inline std::vector<double> by_definition(const Placeholder& p, const std::vector<std::vector<double>>& parts, int r) {
  const Groups groups = p.groups.over(static_cast<int>(parts.size()));
  const auto& members = groups.members(groups.group_of(r));
  const auto position = static_cast<std::size_t>(groups.position(r));
  const auto given = [&](std::size_t member) -> const std::vector<double>& { return parts[static_cast<std::size_t>(members[member])]; };
  if (p.kind == CollectiveKind::broadcast) return given(static_cast<std::size_t>(p.root));
  std::vector<double> joined;
  const std::size_t n = given(0).size() / members.size();  // elements of a part, if the collective has parts
  if (p.kind == CollectiveKind::all_gather || p.kind == CollectiveKind::all_to_all) {
    for (std::size_t m = 0; m < members.size(); ++m) {
      const auto from = p.kind == CollectiveKind::all_gather ? given(m).begin() : given(m).begin() + static_cast<std::ptrdiff_t>(position * n);
      joined.insert(joined.end(), from, p.kind == CollectiveKind::all_gather ? given(m).end() : from + static_cast<std::ptrdiff_t>(n));
    }
    return joined;
  }
  joined = given(0);
  for (std::size_t m = 1; m < members.size(); ++m)
    for (std::size_t e = 0; e < joined.size(); ++e)
      joined[e] = p.reduction == Reduction::min   ? std::min(joined[e], given(m)[e])
                  : p.reduction == Reduction::max ? std::max(joined[e], given(m)[e])
                                                  : joined[e] + given(m)[e];
  if (p.reduction == Reduction::mean)
    for (auto& value : joined) value /= static_cast<double>(members.size());
  if (p.kind == CollectiveKind::all_reduce) return joined;
  return {joined.begin() + static_cast<std::ptrdiff_t>(position * n), joined.begin() + static_cast<std::ptrdiff_t>((position + 1) * n)};
}

// The results of every replica.
inline std::vector<std::vector<AnyArray>> run_together(const std::vector<Graph>& graphs,
                                                       const std::vector<std::vector<AnyArray>>& inputs) {
  const auto replicas = graphs.size();
  std::vector<std::map<std::uint32_t, AnyArray>> known(replicas);
  // Placeholders become inputs, once their values are known.
  const auto value_of = [&](std::size_t r, Value wanted) {
    Graph plain{static_cast<int>(r), static_cast<int>(replicas)};
    std::vector<AnyArray> given = inputs[r];
    for (std::uint32_t i = 0; i <= wanted.node; ++i) {
      Node node = graphs[r].node(i);
      if (node.get<Placeholder>()) {
        given.push_back(known[r].contains(i) ? known[r].at(i) : AnyArray{node.outputs[0]});
        node.what = Input{Input::Source::element, static_cast<std::uint32_t>(given.size() - 1)};
        node.inputs.clear();
      }
      plain.add(std::move(node));
    }
    EvaluateOptions options;
    options.context.replica = static_cast<std::uint32_t>(r);
    return evaluate(plain, {&wanted, 1}, given, options)[0];
  };
  std::vector<std::vector<std::uint32_t>> asked;  // the nodes of each replica's collectives, in order
  for (const auto& graph : graphs) asked.push_back(placeholders_of(graph));
  for (std::size_t k = 0; k < asked[0].size(); ++k) {
    std::vector<std::vector<double>> parts;
    for (std::size_t r = 0; r < replicas; ++r) parts.push_back(doubles(value_of(r, graphs[r].node(asked[r][k]).inputs[0])));
    for (std::size_t r = 0; r < replicas; ++r) {
      const Node& node = graphs[r].node(asked[r][k]);
      known[r].emplace(asked[r][k], array_of(node.outputs[0], by_definition(*node.get<Placeholder>(), parts, static_cast<int>(r))));
    }
  }
  std::vector<std::vector<AnyArray>> results(replicas);
  for (std::size_t r = 0; r < replicas; ++r)
    for (const auto result : graphs[r].results()) results[r].push_back(value_of(r, result));
  return results;
}

// Checks the gradient at each replica against differences of the sum over all replicas of sum(f(x_r) * r).
template <class F>
double collective_error(std::size_t replicas, const Shape& shape, F f) {
  std::vector<Graph> graphs;
  std::vector<std::vector<AnyArray>> at;
  for (std::size_t r = 0; r < replicas; ++r) {
    auto& graph = graphs.emplace_back(static_cast<int>(r), static_cast<int>(replicas));
    at.push_back({random_array<double>(shape, 70 + r).any()});
    const Tensor<double> x{input(graph, {DType::float64, shape}, 0)};
    const Tensor<double> y = f(x);
    const Tensor<double> weighted = y * constant(graph, random_array<double>(y.shape(), 90 + r));
    graph.results() = {sum(weighted).any().value(), gradient(weighted, x).any().value()};
  }
  const auto total = [&](const std::vector<std::vector<AnyArray>>& inputs) {
    double sum = 0;
    for (const auto& results : run_together(graphs, inputs)) sum += doubles(results[0])[0];
    return sum;
  };
  const auto results = run_together(graphs, at);
  double most = 0;
  for (std::size_t r = 0; r < replicas; ++r)
    for (std::size_t e = 0; e < static_cast<std::size_t>(shape.elements()); ++e) {
      auto up = at, down = at;
      up[r][0].as<double>()[e] += 1e-5;
      down[r][0].as<double>()[e] -= 1e-5;
      most = std::max(most, std::abs((total(up) - total(down)) / 2e-5 - doubles(results[r][1])[e]));
    }
  return most;
}

}  // namespace replicator::test
