// SPDX-License-Identifier: Apache-2.0
// Gradients of gradients through collectives, against differences of the gradient.
#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/cpu/movement.hpp>
#include <replicator/resolve/map_over_replicas.hpp>
#include <replicator/resolve/nests.hpp>

#include "../support/cases.hpp"
#include "../support/together.hpp"

namespace test_second_order {

using namespace replicator;
using namespace replicator::detail;
using T = Tensor<double>;

namespace {

constexpr Reduction reductions[] = {Reduction::sum, Reduction::mean, Reduction::min, Reduction::max};

// The error of the gradient of the gradient, for a function whose gradient depends on x before and after the
// collective, and on the replica.
template <class F>
double second_order_error(int replicas, const Shape& shape, F collective) {
  return test::collective_error(static_cast<std::size_t>(replicas), shape, [&](T x) {
    const T y = collective(x * x * x + x);
    const auto weights = test::random_array<double>(y.shape(), 190 + static_cast<std::uint64_t>(x.graph().replica()));
    return gradient(y * y * constant(x.graph(), weights), x);
  });
}

std::vector<std::function<T()>> thunks(T x, int count) {
  std::vector<std::function<T()>> all;
  for (int i = 0; i < count; ++i) all.push_back([x, i] { return x * x + x * static_cast<double>(i + 1); });
  return all;
}

struct Pair {
  T first, second;

  template <class V>
  void describe(V& v) const {
    v("first", first);
    v("second", second);
  }
};

}  // namespace

TEST_CASE("gradients of gradients pass through every collective, on any number of replicas") {
  for (const int replicas : test::cases({1, 2, 3, 5}, {1, 3})) {
    const Shape shape{replicas};
    const auto error = [&](auto f) { return second_order_error(replicas, shape, f); };
    for (const auto reduction : reductions) {
      INFO(replicas << " replicas, " << name_of(reduction));
      CHECK(error([&](T x) { return all_reduce(x, reduction); }) < 1e-5);
      CHECK(error([&](T x) { return reduce_scatter(x, reduction); }) < 1e-5);
    }
    CHECK(error([](T x) { return all_gather(x); }) < 1e-5);
    CHECK(error([](T x) { return all_to_all(x); }) < 1e-5);
    CHECK(error([&](T x) { return broadcast(x, replicas - 1); }) < 1e-5);
  }
}

TEST_CASE("gradients of gradients pass through every collective inside groups") {
  for (const auto& groups : {group_rows(4, 2), group_columns(4, 2)}) {
    INFO(groups.text());
    const CollectiveOptions in{.group = groups};
    const auto error = [](auto f) { return second_order_error(4, {2}, f); };
    for (const auto reduction : reductions) {
      INFO(name_of(reduction));
      CHECK(error([&](T x) { return all_reduce(x, reduction, in); }) < 1e-5);
      CHECK(error([&](T x) { return reduce_scatter(x, reduction, in); }) < 1e-5);
    }
    CHECK(error([&](T x) { return all_gather(x, in); }) < 1e-5);
    CHECK(error([&](T x) { return all_to_all(x, 0, 0, in); }) < 1e-5);
    CHECK(error([&](T x) { return broadcast(x, 1, in); }) < 1e-5);
    CHECK(error([&](T x) { return map_reduce(x.graph(), thunks(x, 3), Reduction::mean, in); }) < 1e-5);
    CHECK(error([&](T x) { return map_gather(x.graph(), thunks(x, 3), in); }) < 1e-5);
  }
  const CollectiveOptions uneven{.group = {{0, 2, 4}, {1, 3}}};
  for (const auto reduction : {Reduction::sum, Reduction::max})
    CHECK(second_order_error(5, {2}, [&](T x) { return all_reduce(x, reduction, uneven); }) < 1e-5);
}

TEST_CASE("gradients of gradients pass through map_reduce and map_gather, with more thunks than replicas and with fewer") {
  for (const int replicas : test::cases({1, 2, 3, 5}, {1, 3}))
    for (const int count : {2, 4}) {
      INFO(replicas << " replicas, " << count << " thunks");
      const auto error = [&](auto f) { return second_order_error(replicas, {2}, f); };
      for (const auto reduction : reductions)
        CHECK(error([&](T x) { return map_reduce(x.graph(), thunks(x, count), reduction); }) < 1e-5);
      CHECK(error([&](T x) { return map_gather(x.graph(), thunks(x, count)); }) < 1e-5);
    }
}

TEST_CASE("gradients and gradients of gradients pass through nests to each of their tensors") {
  for (const int replicas : test::cases({1, 2, 3, 5}, {1, 3})) {
    const auto check = [&](auto f) {
      CHECK(test::collective_error(static_cast<std::size_t>(replicas), {replicas}, f) < 1e-5);
      CHECK(second_order_error(replicas, {replicas}, f) < 1e-5);
    };
    check([](T x) {
      const auto [a, b] = all_reduce(Pair{x * x, x * 3.0}, Reduction::mean);
      return a * b;
    });
    check([](T x) {
      const auto parts = reduce_scatter(std::vector<T>{x, x * x}, Reduction::max);
      return parts[0] - parts[1];
    });
    check([](T x) {
      const auto [a, b] = all_gather(std::pair{x, x * x});
      return a * b;
    });
    check([](T x) {
      const auto [a, b] = all_to_all(std::tuple{x, std::vector<T>{x * x}});
      return a * b[0];
    });
    check([](T x) { return broadcast(std::vector<T>{x, x * x}, 0)[1] * x; });
  }
}

}  // namespace test_second_order
