// SPDX-License-Identifier: Apache-2.0
// Elementwise operations. Shapes broadcast as in NumPy. Where they cannot, BuildError is thrown with the user's line.
//
// Integer arithmetic wraps around. uint8 and bool are computed in int32. At the end uint8 is cut to 8 bits, and bool to "not zero".
// Integer division truncates towards zero, and x % y has the sign of x. No division ends the program: x / 0 is 0, x % 0 is x, and
// the lowest int32 or int64 divided by -1 is itself. Floating arithmetic follows IEEE 754: a NaN operand gives a NaN unless said
// otherwise. bfloat16 is computed in float32 and rounded once.
//
// Integer tensors have the operations on bits too: & | ^ ~ << >>, see Tensor. A number beside them must be one of them: `x * 0.5` and
// `x / 255.0f` throw BuildError.
#pragma once

#include <concepts>
#include <source_location>
#include <string_view>
#include <type_traits>
#include <utility>

#include <replicator/core/parameters_fit.hpp>
#include <replicator/graph/symbol.hpp>
#include <replicator/graph/tensor.hpp>
#include <replicator/ops/mixed_precision.hpp>

namespace replicator {

namespace detail {

// The type of each argument, written so that nvcc's front end keeps the dots of the pack.
template <std::size_t>
struct SymbolAt {
  using type = Symbol;
};

// Whether f can be called with symbols. The name is a sentence because compilers print it above the error of a call in f.
template <class F, class... Symbols>
constexpr bool functions_in_rp_map_are_called_without_std() {
  return requires(F & f, Symbols... symbols) { f(symbols...); };
}

// Throws BuildError for the bounds of clamp.
template <class = void>
[[noreturn]] void refuse_bounds(Number low, Number high, const AnyTensor& x, Location where) {
  throw BuildError{detail::call_text(x.graph().replica(), "clamp", where) + ": the bounds are " + number_text(low.real()) + " and " +
                   number_text(high.real()) + ": both must be numbers, the lower one first"};
}

// Records f's expression: calls f with one symbol for each input.
template <class F, std::size_t... I>
detail::Expression record(F& f, DType compute, std::index_sequence<I...>) {
  detail::Expression e;
  e.compute = compute;
  e.inputs = sizeof...(I);
  constexpr bool takes_symbols = functions_in_rp_map_are_called_without_std<F, typename SymbolAt<I>::type...>();
  constexpr bool fits = takes_symbols || parameters_fit<F, typename SymbolAt<I>::type...>();
  static_assert(fits, "replicator: a functor given to rp::map must take an rp::Symbol for each tensor: write [](auto a, auto b) for two");
  static_assert(takes_symbols || !fits,
                "replicator: a functor given to rp::map calls a function that takes no rp::Symbol; an error above names it. Use abs sign sqrt exp log tanh erf "
                "sin cos floor ceil round relu min max pow fma select, without std::, or write it in terms of them");
  if constexpr (takes_symbols) {
    const std::uint16_t inputs[] = {e.input(I)...};
    const auto result = f(Symbol{e, inputs[I]}...);
    constexpr bool gives_symbol = std::is_same_v<std::remove_cv_t<decltype(result)>, Symbol>;
    static_assert(gives_symbol, "replicator: a functor given to rp::map must return the expression of its arguments (an rp::Symbol)");
    if constexpr (gives_symbol) e.outputs = {result.index()};
  }
  return e;
}

// An elementwise node of f's expression over the inputs. It is computed in the compute type of `dtype`, and stored as `dtype`.
// The inputs may have other types.
template <class F, class... Inputs>
AnyTensor map_at(Graph& graph, DType dtype, Location where, F f, const Inputs&... inputs) {
  const AnyTensor operands[] = {inputs...};
  return map_node(graph, record(f, compute_type(dtype), std::make_index_sequence<sizeof...(Inputs)>{}), operands, dtype, where);
}
// The same in the graph of the first input, for the call `title` of the program, which errors name.
template <class F, class... Inputs>
AnyTensor titled_map(std::string_view title, DType dtype, Location where, F f, const Inputs&... inputs) {
  const AnyTensor operands[] = {inputs...};
  return map_node(title, record(f, compute_type(dtype), std::make_index_sequence<sizeof...(Inputs)>{}), operands, dtype, where);
}

template <Element T>
Tensor<T> unary(detail::ScalarOp op, Tensor<T> x, Location where) {
  return Tensor<T>{apply(op, {x.any()}, where, name_of(op))};
}

}  // namespace detail

namespace detail {
template <class T>
constexpr void refuse_captured() {
  static_assert(!std::same_as<T, T>, "replicator: a functor given to rp::map works on single elements: give it the rp::Tensor as an argument, as in rp::map(f, x, w)");
}
}  // namespace detail

#define REPLICATOR_REFUSE(op)                                                                \
  template <class T>                                                                         \
  Symbol operator op(Symbol a, const Tensor<T>&) { return detail::refuse_captured<T>(), a; } \
  template <class T>                                                                         \
  Symbol operator op(const Tensor<T>&, Symbol a) { return detail::refuse_captured<T>(), a; }
// A tensor that a functor of rp::map captures is refused by a sentence of the compiler.
REPLICATOR_REFUSE(+)
REPLICATOR_REFUSE(-)
REPLICATOR_REFUSE(*)
REPLICATOR_REFUSE(/)
REPLICATOR_REFUSE(<)
REPLICATOR_REFUSE(<=)
REPLICATOR_REFUSE(>)
REPLICATOR_REFUSE(>=)
REPLICATOR_REFUSE(==)
REPLICATOR_REFUSE(!=)
#undef REPLICATOR_REFUSE

// y[i] = f(x0[i], x1[i], ...). f is called once, on rp::Symbols, while the graph is built. f may use
// - numbers, and the operators + - * /, comparisons and && || !
// - for integers also the operators % & | ^ ~ << >>
// - these functions, without std::: abs sign sqrt exp log tanh erf sin cos floor ceil round relu min max pow fma select
//
// It is differentiable to any order. If the tensors have several types, the result has the first one's type. It is also computed in this type (bfloat16 in float32).
//   auto y = rp::map([](auto a, auto b) { return a * exp(-b); }, x0, x1);
template <class F, Element T, class... More>
struct map : Tensor<T> {
  map(F f, Tensor<T> x, More... more, std::source_location where = std::source_location::current())
      : Tensor<T>{make(f, where, x, more...)} {}
  using Tensor<T>::operator=;  // auto h = rp::map(f, x); h = rp::relu(h);

 private:
  static AnyTensor make(F& f, Location where, const Tensor<T>& x, const More&... more) {
    const AnyTensor operands[] = {x, more...};
    auto expression = detail::at_line("map", where, [&] {
      return detail::record(f, detail::compute_type(dtype_of<T>), std::make_index_sequence<1 + sizeof...(More)>{});
    });
    return map_node(x.graph(), std::move(expression), operands, dtype_of<T>, where, "map");
  }
};
template <class F, Element T, class... More>
map(F, Tensor<T>, More...) -> map<F, T, Tensor<typename More::element_type>...>;

// |x|. The lowest integer gives itself. The derivative at 0 is 0.
template <Element T>
Tensor<T> abs(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::absolute, x, where);
}
// -1, 0 or 1. A NaN gives 0. The derivative is 0.
template <Element T>
Tensor<T> sign(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::sign, x, where);
}
// The square root; NaN below 0. Its derivative at 0 is infinite.
template <FloatingElement T>
Tensor<T> sqrt(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::square_root, x, where);
}
// e^x
template <FloatingElement T>
Tensor<T> exp(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::exponential, x, where);
}
// The natural logarithm; minus infinity at 0, NaN below.
template <FloatingElement T>
Tensor<T> log(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::logarithm, x, where);
}
// The hyperbolic tangent, in [-1, 1].
template <FloatingElement T>
Tensor<T> tanh(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::hyperbolic_tangent, x, where);
}
// The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x; in [-1, 1].
template <FloatingElement T>
Tensor<T> erf(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::error_function, x, where);
}
// The sine of x in radians; NaN beyond 2^30. In float64 the error grows beyond 2^20, to 7e-8 at 2^30.
template <FloatingElement T>
Tensor<T> sin(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::sine, x, where);
}
// The cosine of x in radians; NaN beyond 2^30. In float64 the error grows beyond 2^20, to 7e-8 at 2^30.
template <FloatingElement T>
Tensor<T> cos(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::cosine, x, where);
}
// The largest whole number that is not above x. Its derivative is 0.
template <FloatingElement T>
Tensor<T> floor(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return detail::unary(detail::ScalarOp::floor, x, where);
}
// The smallest whole number that is not below x. Its derivative is 0.
template <FloatingElement T>
Tensor<T> ceil(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::titled_map(
      "ceil", dtype_of<T>, where, [](Symbol a) { return ceil(a); }, x.any())};
}
// The nearest whole number, and of two the even one, as in PyTorch and NumPy: -0.3 gives -0. Its derivative is 0.
template <FloatingElement T>
Tensor<T> round(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::titled_map(
      "round", dtype_of<T>, where, [](Symbol a) { return round(a); }, x.any())};
}
// max(x, 0). A NaN stays, and the derivative at 0 is 0. Under rp::mixed_precision the result is rounded.
template <Element T>
Tensor<T> relu(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::rectified_node(x, where)};
}

// b < a ? b : a. A NaN in a stays, and a NaN in b is passed over (in reductions a NaN always wins). Of equal values the left one is
// taken, and it receives the gradient. One operand may be a number. Wherever it stands, it counts as b: a NaN of the tensor stays.
template <Element T>
Tensor<T> minimum(Tensor<T> a, Tensor<T> b, std::source_location where = std::source_location::current()) {
  return Tensor<T>{apply(detail::ScalarOp::minimum, {a.any(), b.any()}, where, "minimum")};
}
template <Element T>
Tensor<T> minimum(Tensor<T> a, Number b, std::source_location where = std::source_location::current()) {
  return Tensor<T>{apply(detail::ScalarOp::minimum, a.any(), detail::checked<T>(b, a.any(), where, "minimum"), where, "minimum")};
}
template <Element T>
Tensor<T> minimum(Number a, Tensor<T> b, std::source_location where = std::source_location::current()) {
  return minimum(b, a, where);
}
// a < b ? b : a; NaN, ties and numbers as for minimum.
template <Element T>
Tensor<T> maximum(Tensor<T> a, Tensor<T> b, std::source_location where = std::source_location::current()) {
  return Tensor<T>{apply(detail::ScalarOp::maximum, {a.any(), b.any()}, where, "maximum")};
}
template <Element T>
Tensor<T> maximum(Tensor<T> a, Number b, std::source_location where = std::source_location::current()) {
  return Tensor<T>{apply(detail::ScalarOp::maximum, a.any(), detail::checked<T>(b, a.any(), where, "maximum"), where, "maximum")};
}
template <Element T>
Tensor<T> maximum(Number a, Tensor<T> b, std::source_location where = std::source_location::current()) {
  return maximum(b, a, where);
}
// x, or the nearer of `low` and `high` where it is less or more. A NaN stays. Where x is taken, it receives the gradient. Throws
// BuildError if `low` is greater than `high`, or one of them is NaN.
template <Element T>
Tensor<T> clamp(Tensor<T> x, Number low, Number high, std::source_location where = std::source_location::current()) {
  for (const Number bound : {low, high}) detail::checked<T>(bound, x.any(), where, "clamp");
  if (!(low.real() <= high.real())) detail::refuse_bounds(low, high, x.any(), where);
  return Tensor<T>{detail::titled_map(
      "clamp", dtype_of<T>, where, [&](Symbol a) { return min(max(a, low), high); }, x.any())};
}
// a^exponent, as C's pow. A negative a with an exponent that is not whole gives NaN. The exponent 0 gives 1.
template <FloatingElement T>
Tensor<T> pow(Tensor<T> a, double exponent, std::source_location where = std::source_location::current()) {
  return Tensor<T>{apply(detail::ScalarOp::power, a.any(), exponent, where, "pow")};
}
// The same with an exponent for each element.
template <FloatingElement T>
Tensor<T> pow(Tensor<T> a, Tensor<T> exponent, std::source_location where = std::source_location::current()) {
  return Tensor<T>{apply(detail::ScalarOp::power, {a.any(), exponent.any()}, where, "pow")};
}
// base^exponent for each exponent: rp::pow(2, x).
template <FloatingElement T>
Tensor<T> pow(Number base, Tensor<T> exponent, std::source_location where = std::source_location::current()) {
  detail::checked<T>(base, exponent.any(), where, "pow");
  return Tensor<T>{detail::titled_map(
      "pow", dtype_of<T>, where, [&](Symbol b) { return pow(base, b); }, exponent.any())};
}

// condition ? yes : no, element by element; all three broadcast. `yes` or `no` may be a number. Each receives the gradient where it was taken.
template <Element T>
Tensor<T> select(Tensor<bool> condition, Tensor<T> yes, Tensor<T> no, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::titled_map(
      "select", dtype_of<T>, where, [](Symbol c, Symbol y, Symbol n) { return select(c, y, n); }, condition, yes, no)};
}
template <Element T>
Tensor<T> select(Tensor<bool> condition, Tensor<T> yes, Number no, std::source_location where = std::source_location::current()) {
  detail::checked<T>(no, yes.any(), where, "select");
  return Tensor<T>{detail::titled_map(
      "select", dtype_of<T>, where, [no](Symbol c, Symbol y) { return select(c, y, no); }, condition, yes)};
}
template <Element T>
Tensor<T> select(Tensor<bool> condition, Number yes, Tensor<T> no, std::source_location where = std::source_location::current()) {
  detail::checked<T>(yes, no.any(), where, "select");
  return Tensor<T>{detail::titled_map(
      "select", dtype_of<T>, where, [yes](Symbol c, Symbol n) { return select(c, yes, n); }, condition, no)};
}

// The same values in another type. Floating to integer truncates, and saturates where the integer ends; NaN gives 0. Integers
// lose their high bits. To bool gives whether a value is not zero. Gradients flow between floating types only.
template <Element To, Element From>
Tensor<To> cast(Tensor<From> x, std::source_location where = std::source_location::current()) {
  return Tensor<To>{converted(x, dtype_of<To>, where)};
}

// A tensor with these values. A ReplicaContext may stand for its graph.
template <Element T>
Tensor<T> constant(Graph& graph, Array<T> values, std::source_location where = std::source_location::current()) {
  return Tensor<T>{constant_node(graph, std::move(values).any(), where)};
}
// A scalar with this value.
template <Element T>
Tensor<T> constant(Graph& graph, T value, std::source_location where = std::source_location::current()) {
  return Tensor<T>{fill(graph, {dtype_of<T>, {}}, value, where)};
}
// `value` in every element. There is no array: the value is computed where it is needed.
template <Element T>
Tensor<T> full(Graph& graph, Shape shape, T value, std::source_location where = std::source_location::current()) {
  return Tensor<T>{fill(graph, {dtype_of<T>, shape}, value, where)};
}
// Zeros of x's shape and type; no gradient flows back to x.
template <Element T>
Tensor<T> zeros_like(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return full<T>(x.graph(), x.shape(), T{}, where);
}

}  // namespace replicator
