// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include <replicator/ops/losses/categorical_projection.hpp>

#include "../support/evaluate.hpp"

namespace test_categorical_projection {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Matchers::Contains;

namespace {

const AtomOptions five{.atoms = 5, .low = -1, .high = 3};  // -1, 0, 1, 2, 3

Array<float> projected(const Array<float>& p, const Array<float>& shift, const Array<float>& scale, const AtomOptions& atoms) {
  Graph graph;
  const auto result = categorical_projection(input(graph, p, 0), input(graph, shift, 1), input(graph, scale, 2), atoms);
  return Array<float>{evaluate(result, std::vector{p.any(), shift.any(), scale.any()})};
}

// As the paper's algorithm 1 has it: each atom is moved, and its probability shared out between its neighbours.
std::vector<double> plainly(const std::vector<double>& p, double shift, double scale, const AtomOptions& atoms) {
  std::vector<double> m(p.size());
  for (std::size_t j = 0; j < p.size(); ++j) {
    const double moved = std::min(std::max(shift + scale * (atoms.low + static_cast<double>(j) * atoms.distance()), atoms.low), atoms.high);
    const double b = (moved - atoms.low) / atoms.distance(), lower = std::floor(b);
    m[static_cast<std::size_t>(lower)] += p[j] * (1 - (b - lower));
    if (b > lower) m[static_cast<std::size_t>(lower) + 1] += p[j] * (b - lower);
  }
  return m;
}

}  // namespace

TEST_CASE("a moved atom is shared out between its neighbours, and goes to the end where it falls outside") {
  const auto found = projected({{3, 5}, {0, 1, 0, 0, 0, /**/ 0, 0, 0, 1, 0, /**/ 0.25f, 0.25f, 0, 0, 0.5f}}, {Shape{3}, {0.25f, 5, 1}},
                               {Shape{3}, {1, 1, 0}}, five);
  const Array<float> expected{{3, 5}, {0, 0.75f, 0.25f, 0, 0, /**/ 0, 0, 0, 0, 1, /**/ 0, 0, 1, 0, 0}};
  CHECK(largest_difference(found.any(), expected.any()) < 1e-6);
}

TEST_CASE("any projection is the algorithm's of the paper") {
  rc::check([] {
    const auto weights = *rc::gen::container<std::vector<int>>(5, rc::gen::inRange(1, 9));
    const double shift = *rc::gen::inRange(-24, 24) / 8.0, scale = *rc::gen::inRange(0, 9) / 8.0;
    double total = 0;
    for (const int weight : weights) total += weight;
    Array<float> p{{1, 5}};
    std::vector<double> exact;
    for (std::size_t i = 0; i < 5; ++i) exact.push_back(weights[i] / total), p[static_cast<std::int64_t>(i)] = static_cast<float>(exact[i]);
    const auto found = projected(p, {Shape{1}, {static_cast<float>(shift)}}, {Shape{1}, {static_cast<float>(scale)}}, five);
    const auto expected = plainly(exact, shift, scale, five);
    for (std::size_t i = 0; i < 5; ++i) RC_ASSERT(std::abs(static_cast<double>(found[static_cast<std::int64_t>(i)]) - expected[i]) < 1e-5);
  });
}

TEST_CASE("shapes and atoms that do not fit are refused, with the line") {
  CHECK_THROWS_WITH(projected(Array<float>{{2, 4}}, Array<float>{Shape{2}}, Array<float>{Shape{2}}, five),
                    Contains("categorical_projection at ") && Contains("probabilities must be [N, 5], shift and scale [N]; found float32[2, 4]"));
  CHECK_THROWS_WITH(projected(Array<float>{{2, 1}}, Array<float>{Shape{2}}, Array<float>{Shape{2}}, {.atoms = 1}),
                    Contains("at least 2 atoms, and finite bounds with low < high"));
}

}  // namespace test_categorical_projection
