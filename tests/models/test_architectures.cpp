// SPDX-License-Identifier: Apache-2.0
// The loss and all gradients of common networks against those of PyTorch in float64. PyTorch's are kept in tests/data/, and made by
//   bench/architecture_gradients.py --store tests/data/architecture_gradients.txt
// bench/compare_architectures --parity compares larger ones with a PyTorch that is installed.
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <replicator/replicator.hpp>

#include "../../bench/architectures/catalog.hpp"

namespace test_architectures {

namespace rp = replicator;

namespace {

// norm, dot product with hashed numbers, first element
using Summary = std::array<double, 3>;

template <class T>
Summary summary(const rp::AnyArray& array, std::uint32_t salt) {
  const auto g = array.as<T>();
  double squares = 0, dot = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const auto value = static_cast<double>(g[i]);
    squares += value * value;
    dot += value * static_cast<double>(bench::hashed(static_cast<std::uint32_t>(i), salt));
  }
  return {std::sqrt(squares), dot, static_cast<double>(g[0])};
}

// What PyTorch found for a network.
struct Expected {
  double loss = 0, scale = 0;  // scale: gradients with smaller norms are zero but for rounding
  std::map<std::string, Summary> gradients;
};

std::map<std::string, Expected> expected() {
  std::ifstream file{std::filesystem::path{__FILE__}.parent_path() / "../data/architecture_gradients.txt"};
  std::map<std::string, Expected> result;
  std::string name, variable;
  std::size_t count = 0;
  for (Expected e; file >> name >> count >> e.loss >> e.scale; result.emplace(name, e)) {
    e.gradients.clear();
    for (Summary s; e.gradients.size() < count && file >> variable >> s[0] >> s[1] >> s[2];) e.gradients.emplace(variable, s);
  }
  return result;
}

template <class T>
void check_gradients(const std::string& name, double bound) {
  const auto all = expected();
  REQUIRE(all.contains(name));
  const auto& theirs = all.at(name);
  const auto ours = architectures::gradients<T>(architectures::catalog().at(name), {}, 0);
  CHECK(std::abs(ours.loss - theirs.loss) < bound * theirs.loss);
  REQUIRE(ours.of.size() == theirs.gradients.size());
  for (const auto& [variable, gradient] : ours.of) {
    INFO(variable);
    REQUIRE(theirs.gradients.contains(variable));
    const auto& there = theirs.gradients.at(variable);
    const auto here = summary<T>(gradient, architectures::salt_of(variable) + 1);
    for (std::size_t i = 0; i < here.size(); ++i) CHECK(std::abs(here[i] - there[i]) < bound * std::max(there[0], theirs.scale));
  }
}

}  // namespace

TEST_CASE("loss and every gradient of common networks are PyTorch's within 1e-11 in float64") {
  check_gradients<double>(GENERATE("tiny/convnext", "tiny/vit", "tiny/gpt", "tiny/unet", "tiny/mobilenet_v2", "tiny/gru"), 1e-11);
}

TEST_CASE("loss and every gradient of common networks are PyTorch's within 1e-4 in float32") {
  check_gradients<float>(GENERATE("tiny/convnext", "tiny/vit", "tiny/gpt", "tiny/unet", "tiny/mobilenet_v2", "tiny/gru"), 1e-4);
}

}  // namespace test_architectures
