// SPDX-License-Identifier: Apache-2.0
// Random tensors. Their bits are a pure function of seed, step, replica and node:
//
//   block b of a node = Philox(key = seed, counter = (b, step, replica, trace index ^ mix(high word of the step)))
//
// The trace index is the node's place in its replica's trace. A block of four words makes four float32 or two float64. Element i
// of the tensor, counted in row-major order, is value i % 4 of block i / 4. (For float64 it is value i % 2 of block i / 2.) It
// does not matter where the element lies, or which device computes it.
//
// With a stream (see RandomOptions), 2^31 + stream stands in the place of the trace index. With of_replica, that replica stands in
// the place of the one that draws.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/core/number_text.hpp>
#include <replicator/core/real.hpp>
#include <replicator/core/replicas_text.hpp>
#include <replicator/graph/tensor.hpp>

namespace replicator {

enum class Distribution : std::uint8_t {
  uniform,  // [0, 1): the upper 24 bits of a word, or 53 of two
  normal,   // mean 0, deviation 1, by Box and Muller: r cos and r sin of two uniform numbers
};
// Gives "uniform" or "normal".
constexpr std::string_view name_of(Distribution distribution) {
  return distribution == Distribution::uniform ? "uniform" : "normal";
}

// Which numbers are drawn. By default each call draws numbers of its own. No other call, replica or step draws the same ones.
//
// **A replica that draws twice from one stream in a step gets the same numbers twice**, in another step function too. The shapes may
// differ: element i is the same. So give each tensor a stream of its own. Other dtypes and distributions of a stream are made from
// the same random bits.
//
// A replica can draw the numbers of another replica. So evolution strategies need not send their noise:
//   auto own = rp::normal(replica, {n}, 0.0f, 1.0f, {.stream = 1});                      // of this replica
//   auto third = rp::normal(replica, {n}, 0.0f, 1.0f, {.stream = 1, .of_replica = 3});  // what replica 3 calls `own`
// With `of_replica` the numbers are the same on all replicas. So they may be assigned to a mirrored variable, and each device draws
// them only once.
//
// Drawing throws BuildError for a stream outside 0 to 2^31 - 1, a replica that does not exist, and of_replica without a stream.
// Source: Salimans, Ho, Chen, Sidor, Sutskever, "Evolution strategies as a scalable alternative to reinforcement learning", 2017.
struct RandomOptions {
  std::optional<std::int64_t> stream = {};  // absent: the call draws numbers of its own
  std::optional<int> of_replica = {};       // absent: the replica that draws
};

namespace detail {
inline constexpr std::int64_t most_random_streams = std::int64_t{1} << 31;
inline constexpr std::int64_t most_random_numbers = std::int64_t{1} << 33;  // of a node
}  // namespace detail

struct Random {
  static constexpr std::string_view name = "random";
  Distribution distribution = Distribution::uniform;
  TensorType type;
  std::uint32_t trace_index = 0;  // or 2^31 + stream
  std::int32_t of_replica = -1;   // -1: the replica that draws

  template <class V>
  void describe(V& v) const {
    v("distribution", distribution);
    v("dtype", type.dtype);
    v("shape", type.shape);
    v("trace_index", trace_index);
    v("of_replica", of_replica);
  }
  bool varies() const { return of_replica < 0; }
  std::vector<TensorType> infer_shape(std::span<const TensorType>) const {
    if (type.dtype != DType::float32 && type.dtype != DType::float64)
      throw BuildError{"asked for random " + type.text() + ": only float32 and float64 can be drawn"};
    if (type.shape.elements() >= detail::most_random_numbers)
      throw BuildError{"asked for random " + type.text() + ": a node makes fewer than 2^33 random numbers"};
    return {type};
  }
  std::vector<AnyTensor> gradient(const GradientContext&) const { return {}; }  // it has no inputs
};

namespace detail {

template <class = void>
[[noreturn]] void refuse_random(const Graph& graph, Location where, const std::string& why) {
  throw BuildError{detail::call_text(graph.replica(), "random numbers", where) + ": " + why};
}

// For bfloat16 the numbers are float32. A result that is made of them is rounded when it is stored.
template <class = void>
AnyTensor random_node(Graph& graph, Distribution distribution, TensorType type, const RandomOptions& options, Location where) {
  const auto refuse = [&](const std::string& why) { refuse_random(graph, where, why); };
  Random random{distribution, type, static_cast<std::uint32_t>(graph.nodes().size())};
  random.type.dtype = compute_type(type.dtype);
  if (options.stream) {
    if (*options.stream < 0 || *options.stream >= most_random_streams)
      refuse("asked for the stream " + std::to_string(*options.stream) + ": streams have numbers from 0 to 2147483647");
    random.trace_index = static_cast<std::uint32_t>(most_random_streams + *options.stream);
  }
  if (options.of_replica) {
    random.of_replica = *options.of_replica;
    if (random.of_replica < 0 || random.of_replica >= graph.replicas())
      refuse("asked for those of replica " + std::to_string(random.of_replica) + ", but there " + only_replicas_text(graph.replicas()));
    if (!options.stream)
      refuse("asked for those of replica " + std::to_string(random.of_replica) +
             " without a stream: name the numbers there and here, for example {.stream = 1} and {.stream = 1, .of_replica = " +
             std::to_string(random.of_replica) + "}");
  }
  return compute(graph, random, {}, where);
}
// x * scale + shift
inline AnyTensor scale_and_shift(AnyTensor x, double scale, double shift, DType result, Location where) {
  detail::Expression e;
  e.compute = compute_type(x.dtype());
  e.inputs = 1;
  const auto scaled = scale == 1 ? e.input(0) : e.apply(detail::ScalarOp::multiply, e.input(0), e.constant(scale));
  e.outputs = {shift == 0 ? scaled : e.apply(detail::ScalarOp::add, scaled, e.constant(shift))};
  return scale == 1 && shift == 0 && x.dtype() == result ? x : map_node(x.graph(), std::move(e), {&x, 1}, result, where);
}
// 0 where the number u is less than `rate`, else x / (1 - rate).
template <FloatingElement T>
Tensor<T> drop(Tensor<T> x, AnyTensor u, double rate, Location where) {
  detail::Expression e;
  e.compute = detail::compute_type(dtype_of<T>);
  e.inputs = 2;
  const auto kept = e.apply(detail::ScalarOp::multiply, e.input(0), e.constant(1 / (1 - rate)));
  const auto dropped = e.apply(detail::ScalarOp::less, e.input(1), e.constant(rate));
  e.outputs = {e.apply(detail::ScalarOp::select, dropped, e.constant(0), kept)};
  const AnyTensor inputs[] = {x, u};
  return Tensor<T>{map_node(x.graph(), std::move(e), inputs, dtype_of<T>, where)};
}
}  // namespace detail

// Uniform in [low, high), new in every step and on every replica. Rounding may give `high` itself where `low` is not 0, and for bfloat16.
// Throws BuildError if high is less than low, or their difference is not finite.
template <FloatingElement T = float>
Tensor<T> uniform(Graph& graph, const Shape& shape, std::type_identity_t<T> low = 0, std::type_identity_t<T> high = 1, const RandomOptions& options = {},
                  std::source_location where = std::source_location::current()) {
  if (const double from = static_cast<double>(low), to = static_cast<double>(high); !(from <= to && detail::is_finite(static_cast<double>(high - low))))
    detail::refuse_random(graph, where, "asked for uniform ones from " + detail::number_text(from) + " to " + detail::number_text(to) + ": both bounds must be finite, the lower one first");
  const AnyTensor u = detail::random_node(graph, Distribution::uniform, {dtype_of<T>, shape}, options, where);
  return Tensor<T>{detail::scale_and_shift(u, high - low, low, dtype_of<T>, where)};
}

// Normal with this mean and standard deviation, new in every step and on every replica. Throws BuildError if the deviation is
// negative, or one of the two is not finite.
template <FloatingElement T = float>
Tensor<T> normal(Graph& graph, const Shape& shape, std::type_identity_t<T> mean = 0, std::type_identity_t<T> stddev = 1, const RandomOptions& options = {},
                 std::source_location where = std::source_location::current()) {
  if (const double around = static_cast<double>(mean), by = static_cast<double>(stddev); !(detail::is_finite(around) && detail::is_finite(by) && by >= 0))
    detail::refuse_random(graph, where, "asked for normal ones with mean " + detail::number_text(around) + " and standard deviation " + detail::number_text(by) + ": both must be finite, the latter not negative");
  const AnyTensor z = detail::random_node(graph, Distribution::normal, {dtype_of<T>, shape}, options, where);
  return Tensor<T>{detail::scale_and_shift(z, stddev, mean, dtype_of<T>, where)};
}

// Each element is 0 with probability `rate`, else x / (1 - rate). Throws BuildError unless 0 <= rate < 1.
// Source: Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, JMLR 15, 2014.
template <FloatingElement T>
Tensor<T> dropout(Tensor<T> x, double rate, std::source_location where = std::source_location::current()) {
  if (!(rate >= 0 && rate < 1))
    throw BuildError{"dropout at " + Location{where}.text() + ": asked for the rate " + detail::number_text(rate) +
                     ", which must be at least 0 and less than 1"};
  if (rate == 0) return x;
  const AnyTensor u = detail::random_node(x.graph(), Distribution::uniform, x.any().type(), {}, where);
  return detail::drop(x, u, rate, where);
}

}  // namespace replicator
