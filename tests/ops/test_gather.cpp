// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cstring>

#include <replicator/cpu/gather.hpp>

#include "../support/differences.hpp"

namespace test_gather {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

std::int64_t in(std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); }

// x [A.., n, B..] and indices [I..]; few different values, so that some come twice and some never.
struct GatherCase {
  Shape x, indices, y;
  std::int64_t axis = 0;
  std::string text() const { return x.text() + " by " + indices.text() + " along " + std::to_string(axis); }
};

GatherCase draw_gather() {
  GatherCase c;
  for (auto rank = in(1, 3); rank > 0; --rank) c.x.push_back(in(1, 5));
  c.axis = in(0, static_cast<std::int64_t>(c.x.rank()) - 1);
  if (in(0, 3) == 0) c.x.push_back(in(16, 40));  // rows of whole groups and a rest
  for (auto rank = in(0, 2); rank > 0; --rank) c.indices.push_back(in(0, 4));
  c.y =
      replicator::detail::replace_axes(c.x, static_cast<std::size_t>(c.axis), 1, {c.indices.begin(), c.indices.rank()});
  return c;
}

template <class I>
Array<I> draw_indices(const GatherCase& c) {
  Array<I> result{c.indices};
  PhiloxStream random{3, 9};
  for (auto& index : result)
    index = static_cast<I>(random.below(static_cast<std::uint32_t>(c.x[static_cast<std::size_t>(c.axis)])));
  return result;
}

// Calls f(place in x, place in y) for every element of y.
template <class I, class F>
void for_each_pair(const GatherCase& c, const Array<I>& indices, F f) {
  const auto axis = static_cast<std::size_t>(c.axis);
  std::size_t y = 0;
  for_each_index(c.y, [&](const std::vector<std::int64_t>& at) {
    const std::vector<std::int64_t> inner(at.begin() + c.axis,
                                          at.begin() + c.axis + static_cast<std::ptrdiff_t>(c.indices.rank()));
    std::vector<std::int64_t> from(at.begin(), at.begin() + c.axis);
    from.push_back(indices[offset_of({}, c.indices, inner)]);
    from.insert(from.end(), at.begin() + static_cast<std::ptrdiff_t>(axis + c.indices.rank()), at.end());
    f(static_cast<std::size_t>(offset_of({}, c.x, from)), y++);
  });
}

template <Element T, class I>
void check_values(const GatherCase& c, int threads) {
  const auto indices = draw_indices<I>(c);
  const auto x = random_array<T>(c.x, 1), y = random_array<T>(c.y, 2);
  Graph graph;
  const auto tx = input(graph, x, 0), ty = input(graph, y, 1);
  const auto ti = input(graph, indices, 2);
  const AnyArray inputs[] = {x.any(), y.any(), indices.any()};
  const EvaluateOptions options{.threads = threads};
  std::vector<T> gathered(static_cast<std::size_t>(c.y.elements())), added(static_cast<std::size_t>(c.x.elements()));
  for_each_pair(c, indices, [&](std::size_t from, std::size_t to) {
    gathered[to] = x[static_cast<std::int64_t>(from)];
    added[from] = static_cast<T>(added[from] + y[static_cast<std::int64_t>(to)]);
  });
  const auto same = [](const AnyArray& found, const std::vector<T>& expected) {
    return found.size_bytes() == expected.size() * sizeof(T) &&
           (expected.empty() || std::memcmp(found.data(), expected.data(), found.size_bytes()) == 0);
  };
  RC_ASSERT(same(evaluate(gather(tx, ti, c.axis), inputs, options), gathered));
  // The sums have the bits of a plain loop in the order of the indices, whatever the number of threads.
  const auto extent = c.x[static_cast<std::size_t>(c.axis)];
  RC_ASSERT(same(evaluate(scatter_add(ty, ti, extent, c.axis), inputs, options), added));
}

}  // namespace

TEST_CASE(
    "gather takes slices by index, scatter_add adds them up in the order of the indices, on any number of threads") {
  REQUIRE(rc::check("plain loops", [] {
    const auto c = draw_gather();
    RC_LOG(c.text());
    const int threads = static_cast<int>(in(1, 3));
    check_values<float, std::int32_t>(c, threads);
    check_values<double, std::int64_t>(c, threads);
    check_values<std::int32_t, std::int32_t>(c, threads);
    check_values<std::int64_t, std::int64_t>(c, threads);
  }));
}

TEST_CASE("gather takes every dtype") {
  Graph graph;
  const Array<std::uint8_t> bytes{{3}, {7, 8, 9}};
  const Array<bool> flags{{3}, {false, true, true}};
  const Array<std::int32_t> indices{{2, 2}, {2, 0, 1, 2}};
  const auto at = input(graph, indices, 2);
  const AnyArray inputs[] = {bytes.any(), flags.any(), indices.any()};
  CHECK(doubles(evaluate(gather(input(graph, bytes, 0), at), inputs)) == std::vector<double>{9, 7, 8, 9});
  CHECK(doubles(evaluate(gather(input(graph, flags, 1), at, -1), inputs)) == std::vector<double>{1, 0, 1, 1});
}

TEST_CASE("the gradients of gather and scatter_add agree with differences to second order") {
  REQUIRE(rc::check("x", [] {
    const auto c = draw_gather();
    RC_LOG(c.text());
    const auto indices = draw_indices<std::int64_t>(c).any();
    const auto squared = [](AnyTensor y) { return apply(ScalarOp::multiply, {y, y}, {}); };
    const Function take = [&](Graph& graph, std::span<const AnyTensor> x) {
      return squared(compute(graph, Gather{c.axis}, {x[0], constant_node(graph, indices, {})}, {}));
    };
    const Function add = [&](Graph& graph, std::span<const AnyTensor> x) {
      const ScatterAdd op{c.axis, c.x[static_cast<std::size_t>(c.axis)]};
      return squared(compute(graph, op, {x[0], constant_node(graph, indices, {})}, {}));
    };
    for (const int order : {1, 2}) {
      RC_ASSERT(gradient_error(take, {random_array<double>(c.x, 1).any()}, order) < 1e-7);
      RC_ASSERT(gradient_error(add, {random_array<double>(c.y, 2).any()}, order) < 1e-7);
    }
  }));
}

TEST_CASE("an index outside names itself, its place and the axis") {
  const Array<float> x{{4, 3}}, y{{4, 2, 2}};
  const auto message = [&](auto make, const Array<std::int64_t>& indices) -> std::string {
    Graph graph;
    const AnyArray inputs[] = {x.any(), y.any(), indices.any()};
    try {
      (void)evaluate(make(graph, input(graph, indices, 2)), inputs);
    } catch (const DataError& error) {
      return error.what();
    }
    return "nothing";
  };
  const auto take = [&](Graph& graph, Tensor<std::int64_t> indices) { return gather(input(graph, x, 0), indices, 1); };
  const auto add = [&](Graph& graph, Tensor<std::int64_t> indices) {
    return scatter_add(input(graph, y, 1), indices, 5, -1);
  };
  CHECK(message(take, {{2, 2}, {0, 2, 3, -1}}) ==
        "the index 3 at [1, 0] of the indices int64[2, 2] lies outside of axis 1 of float32[4, 3]: "
        "indices count from 0 and must be below 3");
  CHECK(message(take, {{}, {-1}}) ==
        "the index -1 at [] of the indices int64[] lies outside of axis 1 of float32[4, 3]: "
        "indices count from 0 and must be below 3");
  CHECK(message(add, {{2, 2}, {0, 4, 4, 5}}) ==
        "the index 5 at [1, 1] of the indices int64[2, 2] lies outside of axis 1 of float32[4, 5]: "
        "indices count from 0 and must be below 5");
}

TEST_CASE("gather and scatter_add say which shapes do not fit, and where") {
  Graph graph;
  const Array<float> x{{4, 3}};
  const Array<bool> flags{{4}};
  const Array<std::int32_t> indices{{3}};
  const auto t = input(graph, x, 0);
  const auto at = input(graph, indices, 1);
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(gather(t, at, 2), Contains("gather at test_gather.cpp:") && Contains("asked for axis 2"));
  CHECK_THROWS_WITH(gather(t, at, -3), Contains("gather at test_gather.cpp:") && Contains("asked for axis -3"));
  CHECK_THROWS_WITH(scatter_add(t, at, 7),
                    Contains("scatter_add at test_gather.cpp:") &&
                        Contains("found float32[4, 3] and indices int32[3]: from axis 0 on x must have the extents"));
  CHECK_THROWS_WITH(scatter_add(t, at, 7, 2), Contains("scatter_add at test_gather.cpp:") && Contains("axis 2"));
  CHECK_THROWS_WITH(scatter_add(t, at, -1, 1), Contains("asked for extent -1 at axis 1 of float32[4, 3]"));
  CHECK_THROWS_WITH(scatter_add(input(graph, flags, 2), input(graph, Array<std::int32_t>{{4}}, 3), 7),
                    Contains("bool[4], whose sums do not fit"));
  CHECK_THROWS_WITH(scatter_add(input(graph, Array<std::uint8_t>{{4}}, 6), input(graph, Array<std::int32_t>{{4}}, 7), 7),
                    Contains("uint8[4], whose sums do not fit: cast it"));
  const Array<float> deep{{1, 1, 1, 1, 1, 1, 1}};
  CHECK_THROWS_WITH(gather(input(graph, deep, 4), input(graph, Array<std::int32_t>{{1, 1, 1}}, 5)),
                    Contains("would have more than 8 dimensions"));
}

}  // namespace test_gather
