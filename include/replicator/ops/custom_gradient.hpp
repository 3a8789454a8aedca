// SPDX-License-Identifier: Apache-2.0
// rp::custom_gradient: a function of tensors whose gradient is given by a second function.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>

namespace replicator {

namespace detail {

// The results of a function, with a gradient rule of the user's own. Inputs: the function's arguments, then its results.
struct CustomGradient {
  static constexpr std::string_view name = "custom_gradient";
  // The gradients of the arguments, from the arguments, the results, and the gradients of the results.
  using Rule = std::function<std::vector<AnyTensor>(std::span<const AnyTensor> arguments, std::span<const AnyTensor> results, std::span<const AnyTensor> upstream)>;
  std::int64_t arguments = 0;
  Rule rule;

  template <class V>
  void describe(V& v) const {
    v("arguments", arguments);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs.begin() + arguments, inputs.end()}; }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    const auto count = static_cast<std::size_t>(arguments);
    for (std::size_t i = count; i < at.wanted.size(); ++i)
      if (at.wanted[i])
        throw BuildError{detail::call_text(at.graph.replica(), "the function given to custom_gradient", at.where) +
                         " uses a tensor that is not among its arguments, and a gradient for that tensor was asked for: pass it as an argument, or use "
                         "its rp::stop_gradient"};
    std::vector<AnyTensor> upstream{at.upstream.begin(), at.upstream.end()};
    for (std::size_t i = 0; i < upstream.size(); ++i)
      if (!upstream[i]) upstream[i] = fill(at.graph, at.outputs[i].type(), 0, at.where);
    return rule(at.inputs.first(count), at.outputs, upstream);
  }
  std::vector<AnyTensor> expand(const ExpansionContext& at) const { return {at.inputs.begin() + arguments, at.inputs.end()}; }
};

template <class T>
concept TensorLike = requires(const T& x) {
  typename T::element_type;
  { x.any() } -> std::convertible_to<AnyTensor>;
};
template <class V>
concept VariableLike = requires(const V& v, std::source_location where) {
  { v.read(where) } -> TensorLike;
};

template <class T>
inline constexpr bool is_tensor_tuple = false;
template <class... T>
inline constexpr bool is_tensor_tuple<std::tuple<T...>> = sizeof...(T) > 0 && (TensorLike<T> && ...);

// As a plain rp::Tensor: rp::map's result, for instance.
template <TensorLike T>
auto plain_tensor(const T& x) {
  return Tensor<typename T::element_type>{x.any()};
}
// What a function returned, as a tuple of plain tensors.
template <class R>
auto tensor_tuple(const R& result) {
  if constexpr (TensorLike<R>) return std::tuple{plain_tensor(result)};
  else return std::apply([](const auto&... each) { return std::tuple{plain_tensor(each)...}; }, result);
}

template <class... T>
std::vector<AnyTensor> any_tensors(const std::tuple<T...>& tensors) {
  return std::apply([](const auto&... each) { return std::vector<AnyTensor>{each.any()...}; }, tensors);
}
// The same handles, with their types.
template <class... T>
std::tuple<T...> with_types(std::type_identity<std::tuple<T...>>, std::span<const AnyTensor> tensors) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) { return std::tuple<T...>{T{tensors[I]}...}; }
  (std::index_sequence_for<T...>{});
}

// std::tuple<Tensor<float>> of the floating ones among Tensor<float>, Tensor<std::int32_t>.
template <class T>
using IfFloating = std::conditional_t<FloatingElement<typename T::element_type>, std::tuple<T>, std::tuple<>>;
template <class Arguments>
struct FloatingOf;
template <class... T>
struct FloatingOf<std::tuple<T...>> {
  using type = decltype(std::tuple_cat(std::declval<IfFloating<T>>()...));
};

template <class F, class Arguments>
struct ResultWith;
template <class F, class... T>
struct ResultWith<F, std::tuple<T...>> {
  static constexpr bool callable = std::is_invocable_v<const F&, T...>;
  using type = std::invoke_result<const F&, T...>;
};

// Explains, by a static_assert, why Backward gives no gradients for these arguments and results.
template <class Backward, class Arguments, class Results>
constexpr bool require_backward() {
  using Called = ResultWith<Backward, decltype(std::tuple_cat(std::declval<Arguments>(), std::declval<Results>(), std::declval<Results>()))>;
  static_assert(Called::callable,
                "replicator: the second function given to rp::custom_gradient must take the arguments, the results, and the gradient of each result: "
                "[](auto x, auto y, auto dy) for one argument and one result");
  if constexpr (Called::callable) {
    using Returned = std::remove_cvref_t<typename Called::type::type>;
    constexpr bool tensors = TensorLike<Returned> || is_tensor_tuple<Returned>;
    static_assert(tensors, "replicator: the second function given to rp::custom_gradient must return a rp::Tensor, or a std::tuple of them");
    if constexpr (tensors) {
      using Given = decltype(tensor_tuple(std::declval<Returned>()));
      constexpr bool fits = std::is_same_v<Given, typename FloatingOf<Arguments>::type>;
      static_assert(fits,
                    "replicator: the second function given to rp::custom_gradient must return one gradient for each floating argument, in order and of its element "
                    "type: std::tuple{da, db} for two");
      return fits;
    }
  }
  return false;
}

// The result of rp::custom_gradient.
template <class F, class Backward>
class WithGradient {
 public:
  WithGradient(F f, Backward backward, std::source_location where) : f_{std::move(f)}, backward_{std::move(backward)}, where_{where} {}

  template <class... A>
  auto operator()(const A&... arguments) const {
    constexpr bool tensors = sizeof...(A) > 0 && ((TensorLike<A> || VariableLike<A>)&&...);
    static_assert(tensors, "replicator: the function made by rp::custom_gradient must be called with rp::Tensors or variables; let the lambdas capture anything else");
    if constexpr (tensors) return call(std::tuple{argument(arguments)...});
  }

 private:
  template <class A>
  auto argument(const A& a) const {
    if constexpr (TensorLike<A>) return plain_tensor(a);
    else return plain_tensor(a.read(where_));
  }

  template <class... T>
  auto call(const std::tuple<T...>& arguments) const {
    using Called = ResultWith<F, std::tuple<T...>>;
    static_assert(Called::callable, "replicator: the first function given to rp::custom_gradient must take one rp::Tensor for each argument");
    if constexpr (Called::callable) {
      using Returned = std::remove_cvref_t<typename Called::type::type>;
      constexpr bool tensors = TensorLike<Returned> || is_tensor_tuple<Returned>;
      static_assert(tensors, "replicator: the first function given to rp::custom_gradient must return a rp::Tensor, or a std::tuple of them");
      if constexpr (tensors) {
        using Results = decltype(tensor_tuple(std::declval<Returned>()));
        if constexpr (require_backward<Backward, std::tuple<T...>, Results>()) {
          Graph& graph = std::get<0>(arguments).graph();
          const auto stopped = [&](auto x) { return decltype(x){compute(graph, StopGradient{}, {x.any()}, where_)}; };
          const auto results = tensor_tuple(std::apply([&](const auto&... each) { return f_(stopped(each)...); }, arguments));
          std::vector<AnyTensor> operands = any_tensors(arguments);
          for (const auto& result : any_tensors(results)) operands.push_back(result);
          const auto node = add_compute(graph, CustomGradient{sizeof...(T), rule<std::tuple<T...>, Results>()}, operands, where_);
          std::vector<AnyTensor> outputs;
          for (std::uint32_t o = 0; o < std::tuple_size_v<Results>; ++o) outputs.push_back(graph.tensor(node, o));
          const auto typed = with_types(std::type_identity<Results>{}, outputs);
          if constexpr (TensorLike<Returned>) return std::get<0>(typed);
          else return typed;
        }
      }
    }
  }

  template <class Arguments, class Results>
  CustomGradient::Rule rule() const {
    return [backward = backward_](std::span<const AnyTensor> arguments, std::span<const AnyTensor> results, std::span<const AnyTensor> upstream) {
      const auto all = std::tuple_cat(with_types(std::type_identity<Arguments>{}, arguments), with_types(std::type_identity<Results>{}, results),
                                      with_types(std::type_identity<Results>{}, upstream));
      const auto given = any_tensors(tensor_tuple(std::apply([&](const auto&... each) { return backward(each...); }, all)));
      std::vector<AnyTensor> gradients;
      std::size_t next = 0;
      for (const auto& argument : arguments) gradients.push_back(is_floating(argument.dtype()) ? given[next++] : AnyTensor{});
      return gradients;
    };
  }

  F f_;
  Backward backward_;
  std::source_location where_;
};

}  // namespace detail

// Returns a function that computes f(x...), and has the gradient that `backward` computes.
// - f takes tensors. It returns a tensor, or a std::tuple of tensors. Its operations are not differentiated.
// - `backward` takes the arguments of f, then its results, then the gradients of the results. It returns the gradient of each
//   floating argument: one tensor, or a std::tuple of tensors.
//
// Both are called while the step is traced, and may use any operation. A gradient of the gradient differentiates `backward`.
//
//   const auto clipped_log = rp::custom_gradient([](auto x) { return rp::log(x); },
//                                                [](auto x, auto, auto dy) { return dy / rp::maximum(x, 1e-3f); });
//   auto y = clipped_log(x);
//
// `backward` is called later than f, by rp::gradients or minimize. So its lambda should capture by value.
// Throws BuildError, with the line of custom_gradient, in two cases: a gradient has another shape than its argument, or the program
// asks for the gradient by a tensor that f captures.
template <class F, class Backward>
auto custom_gradient(F f, Backward backward, std::source_location where = std::source_location::current()) {
  return detail::WithGradient<F, Backward>{std::move(f), std::move(backward), where};
}

}  // namespace replicator
