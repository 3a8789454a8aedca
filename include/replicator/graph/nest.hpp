// SPDX-License-Identifier: Apache-2.0
// Nests of tensors: tuples, pairs, vectors, arrays, and aggregates with `describe`, whose members are tensors or nests.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>

namespace replicator {

namespace detail {

// "gradients/weight"; only "weight" for an empty path
inline std::string join_path(const std::string& path, std::string_view name) {
  return path.empty() ? std::string{name} : path + "/" + std::string{name};
}

struct AnyVisitor {
  template <class T>
  void operator()(std::string_view, const T&) {}
};

// `map(nest, path, f)` returns the same nest with f(leaf, path) in place of each tensor, in order.
template <class N>
struct Nest {
  static constexpr bool valid = false;
};

template <Element T>
struct Nest<Tensor<T>> {
  static constexpr bool valid = true;
  template <class F>
  static Tensor<T> map(const Tensor<T>& leaf, const std::string& path, F& f) {
    return f(leaf, path);
  }
};

template <class... N>
requires(Nest<N>::valid&&...) struct Nest<std::tuple<N...>> {
  static constexpr bool valid = true;
  template <class F>
  static std::tuple<N...> map(const std::tuple<N...>& nest, const std::string& path, F& f) {
    return map_all(nest, path, f, std::index_sequence_for<N...>{});
  }

 private:
  template <class F, std::size_t... I>  // braces keep the order
  static std::tuple<N...> map_all(const std::tuple<N...>& nest, const std::string& path, F& f, std::index_sequence<I...>) {
    return std::tuple<N...>{Nest<N>::map(std::get<I>(nest), join_path(path, std::to_string(I)), f)...};
  }
};

template <class A, class B>
requires(Nest<A>::valid&& Nest<B>::valid) struct Nest<std::pair<A, B>> {
  static constexpr bool valid = true;
  template <class F>
  static std::pair<A, B> map(const std::pair<A, B>& nest, const std::string& path, F& f) {
    return std::pair<A, B>{Nest<A>::map(nest.first, join_path(path, "0"), f), Nest<B>::map(nest.second, join_path(path, "1"), f)};
  }
};

// A row of nests. It is copied and then overwritten one by one, because tensors have no default constructor.
template <class Row>
struct RowNest {
  static constexpr bool valid = true;
  template <class F>
  static Row map(const Row& nest, const std::string& path, F& f) {
    Row result = nest;
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = Nest<typename Row::value_type>::map(nest[i], join_path(path, std::to_string(i)), f);
    return result;
  }
};
template <class N>
requires(Nest<N>::valid) struct Nest<std::vector<N>> : RowNest<std::vector<N>> {
};
template <class N, std::size_t count>
requires(Nest<N>::valid) struct Nest<std::array<N, count>> : RowNest<std::array<N, count>> {
};

// An aggregate. Members that are no nests stay as they are.
template <class N>
requires requires(const N& nest, AnyVisitor& visitor) { nest.describe(visitor); }
struct Nest<N> {
  static constexpr bool valid = true;
  template <class F>
  static N map(const N& nest, const std::string& path, F& f) {
    N result = nest;
    auto visit = [&](std::string_view name, const auto& member) {
      using Member = std::remove_cvref_t<decltype(member)>;
      // `describe` gives read access, but the members belong to `result`, which is not const.
      if constexpr (Nest<Member>::valid) const_cast<Member&>(member) = Nest<Member>::map(member, join_path(path, name), f);
    };
    result.describe(visit);
    return result;
  }
};

template <class N>
inline constexpr bool is_tensor = false;
template <Element T>
inline constexpr bool is_tensor<Tensor<T>> = true;

}  // namespace detail

// Several tensors in one object. A single tensor is no nest.
template <class N>
concept TensorNest = detail::Nest<N>::valid && !detail::is_tensor<N>;

// Returns the same nest with f(tensor, path) in place of each tensor, in order; f returns the same type of tensor. A path
// consists of `name`, the names of described members and the positions in rows: "gradients/layers/2/weight".
template <TensorNest N, class F>
N map_nest(const N& nest, const std::string& name, F f) {
  return detail::Nest<N>::map(nest, name, f);
}

}  // namespace replicator
