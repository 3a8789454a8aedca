// SPDX-License-Identifier: Apache-2.0
// Every collective on bool, uint8, int64 and double, on any placement, against its definition.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/all_to_all.hpp>

#include "deployments.hpp"

namespace test_element_types {

using namespace replicator;
using namespace replicator::detail;

namespace {

constexpr int rows = 3;  // a replica's tensor has as many for each replica

// All values of the type but for double, whose sums are exact.
template <Element T>
Array<T> drawn(std::uint64_t seed, int replica, int replicas) {
  PhiloxStream random{seed, static_cast<std::uint64_t>(replica)};
  Array<T> result{{rows * replicas, 2}};
  for (auto& value : result) {
    const std::uint64_t bits = std::uint64_t{random.below(1u << 31)} << 33 ^ random.below(1u << 31) << 2 ^ random.below(4);
    if constexpr (std::is_same_v<T, bool>) value = bits % 3 == 0;
    else if constexpr (std::is_same_v<T, double>) value = static_cast<double>(bits >> 40) / 1024;
    else value = static_cast<T>(bits);
  }
  return result;
}

template <Element T>
T combined(Reduction reduction, T a, T b) {
  if (reduction == Reduction::min) return std::min(a, b);
  if (reduction == Reduction::max) return std::max(a, b);
  if constexpr (std::is_same_v<T, double>) return a + b;
  else return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));  // wraps
}

template <Element T>
void require_definition(std::uint64_t seed, int replicas, int devices, Reduction reduction, int root) {
  Replicator repl{test::on_devices(replicas, devices, seed)};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([seed = ctx.seed(), r = ctx.replica(), n = ctx.replicas()](std::int64_t) { return drawn<T>(seed, r, n); });
  };
  auto step = repl.replicate(input_fn, [&](ReplicaContext&, Tensor<T> x) {
    return std::tuple{all_reduce(x, reduction), reduce_scatter(x, reduction), all_gather(x), broadcast(x, root), all_to_all(x)};
  });
  const auto [reduced, part, gathered, sent, exchanged] = step.step();
  std::vector<Array<T>> given;
  for (int r = 0; r < replicas; ++r) given.push_back(drawn<T>(seed, r, replicas));
  Array<T> total = given[0];
  for (int r = 1; r < replicas; ++r)
    for (std::int64_t i = 0; i < total.size(); ++i) total[i] = combined<T>(reduction, total[i], given[static_cast<std::size_t>(r)][i]);
  if constexpr (std::is_same_v<T, double>)
    for (auto& value : total) value /= reduction == Reduction::mean ? replicas : 1;
  const std::int64_t each = total.size(), block = 2 * rows;
  for (int r = 0; r < replicas; ++r) {
    const auto own = r * block;
    RC_ASSERT(std::equal(reduced[r].begin(), reduced[r].end(), total.begin(), total.end()));
    RC_ASSERT(std::equal(part[r].begin(), part[r].end(), total.begin() + own, total.begin() + own + block));
    RC_ASSERT(std::equal(sent[r].begin(), sent[r].end(), given[static_cast<std::size_t>(root)].begin()));
    for (int from = 0; from < replicas; ++from) {
      const auto& other = given[static_cast<std::size_t>(from)];
      RC_ASSERT(std::equal(other.begin(), other.end(), gathered[r].begin() + from * each));
      RC_ASSERT(std::equal(other.begin() + own, other.begin() + own + block, exchanged[r].begin() + from * block));
    }
  }
}

template <Element T>
bool holds(std::vector<Reduction> reductions) {
  return rc::check([&] {
    const int replicas = *rc::gen::inRange(1, 9);
    const int devices = *rc::gen::inRange(1, replicas + 1);
    require_definition<T>(*rc::gen::inRange<std::uint64_t>(0, 1 << 30), replicas, devices, *rc::gen::elementOf(reductions),
                          *rc::gen::inRange(0, replicas));
  });
}

}  // namespace

TEST_CASE("every collective moves and reduces bool, uint8, int64 and double by its definition, on any placement") {
  const std::vector extrema{Reduction::min, Reduction::max}, whole{Reduction::sum, Reduction::min, Reduction::max};
  CHECK(holds<bool>(extrema));
  CHECK(holds<std::uint8_t>(whole));
  CHECK(holds<std::int64_t>(whole));
  CHECK(holds<double>({Reduction::sum, Reduction::mean, Reduction::min, Reduction::max}));
}

TEST_CASE("a step that adds bools over replicas is refused with what to do instead") {
  Replicator repl{test::on_devices(2, 1)};
  const auto input_fn = [](const InputContext&) { return data::from_generator([](std::int64_t) { return Array<bool>{{2}}; }); };
  for (const auto reduction : {Reduction::sum, Reduction::mean}) {
    const auto error = test::error_of([&] { repl.replicate(input_fn, [&](ReplicaContext&, Tensor<bool> x) { return all_reduce(x, reduction); }); });
    CHECK_THAT(error, Catch::Contains("all_reduce at test_element_types.cpp:") &&
                          Catch::EndsWith(": " + std::string{name_of(reduction)} +
                                          " of bool[2] over replicas is not defined: cast to a floating type first, or take min or max"));
  }
}

}  // namespace test_element_types
