// SPDX-License-Identifier: Apache-2.0
// Distributions over fixed values ("atoms"), for distributional reinforcement learning.
// Source: Bellemare, Dabney, Munos, "A distributional perspective on reinforcement learning", 2017, equation 7.
#pragma once

#include <source_location>
#include <string>

#include <replicator/core/number_text.hpp>
#include <replicator/core/real.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>

namespace replicator {

// `atoms` values at equal distances from `low` to `high`.
struct AtomOptions {
  std::int64_t atoms = 51;
  double low = 0;
  double high = 1;

  double distance() const { return (high - low) / static_cast<double>(atoms - 1); }
  // Throws BuildError unless atoms >= 2 and low < high, both finite.
  void require_valid(const std::string& what) const {
    if (atoms < 2 || !(low < high && detail::is_finite(low) && detail::is_finite(high)))
      throw BuildError{what + ": a distribution needs at least 2 atoms, and finite bounds with low < high; found " + std::to_string(atoms) + " atoms from " +
                       detail::number_text(low) + " to " + detail::number_text(high)};
  }
};

// The values of the atoms: [atoms].
inline Array<float> atom_values(const AtomOptions& options) {
  options.require_valid("atom_values");
  Array<float> values{Shape{options.atoms}};
  for (std::int64_t i = 0; i < options.atoms; ++i) values[i] = static_cast<float>(options.low + options.distance() * static_cast<double>(i));
  return values;
}

// Projects a distribution back to the atoms: probabilities [N, atoms], shift [N], scale [N] -> [N, atoms]. The distribution has
// these probabilities at the values shift + scale * atom. A value between two atoms is shared out by its distance to them. A
// value outside goes to the nearest atom. Throws BuildError for shapes or atoms that do not fit.
inline Tensor<float> categorical_projection(Tensor<float> probabilities, Tensor<float> shift, Tensor<float> scale, const AtomOptions& options,
                                            std::source_location where = std::source_location::current()) {
  const std::string name = "categorical_projection at " + Location{where}.text();
  options.require_valid(name);
  const Shape& shape = probabilities.shape();
  if (shape.rank() != 2 || shape[1] != options.atoms || !(shift.shape() == Shape{shape[0]}) || !(scale.shape() == shift.shape()))
    throw BuildError{name + ": probabilities must be [N, " + std::to_string(options.atoms) + "], shift and scale [N]; found " +
                     probabilities.any().type().text() + ", " + shift.any().type().text() + " and " + scale.any().type().text()};
  const auto n = shape[0], atoms = shape[1];
  Graph& graph = probabilities.graph();
  const auto from = reshape(constant(graph, atom_values(options), where).any(), Shape{1, 1, atoms}, where);
  const auto to = reshape(constant(graph, atom_values(options), where).any(), Shape{1, atoms, 1}, where);
  const auto low = static_cast<float>(options.low), high = static_cast<float>(options.high), distance = static_cast<float>(options.distance());
  const AnyTensor shares = detail::map_at(
      graph, DType::float32, where,
      [=](Symbol p, Symbol value, Symbol atom, Symbol b, Symbol a) {
        const Symbol moved = min(max(b + a * value, low), high);
        return p * max(1 - abs(moved - atom) / distance, 0);
      },
      reshape(probabilities.any(), Shape{n, 1, atoms}, where), from, to, reshape(shift.any(), Shape{n, 1, 1}, where),
      reshape(scale.any(), Shape{n, 1, 1}, where));
  return sum(Tensor<float>{shares}, {2}, where);  // [N, to, from] -> [N, to]
}

}  // namespace replicator
