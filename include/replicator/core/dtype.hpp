// SPDX-License-Identifier: Apache-2.0
// The element types of arrays and tensors.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <replicator/core/bfloat16.hpp>

namespace replicator {

// The element type of an array or tensor, at run time.
enum class DType : std::uint8_t {
  float32,
  float64,
  int32,
  int64,
  uint8,
  boolean,
  bfloat16
};

// The C++ types that correspond to a DType.
template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::int64_t> || std::same_as<T, std::uint8_t> || std::same_as<T, bool> || std::same_as<T, bfloat16>;

// The floating types. Gradients flow only through these.
template <class T>
concept FloatingElement = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bfloat16>;

template <Element T>
inline constexpr DType dtype_of = std::same_as<T, float>          ? DType::float32
                                  : std::same_as<T, double>       ? DType::float64
                                  : std::same_as<T, std::int32_t> ? DType::int32
                                  : std::same_as<T, std::int64_t> ? DType::int64
                                  : std::same_as<T, std::uint8_t> ? DType::uint8
                                  : std::same_as<T, bool>         ? DType::boolean
                                                                  : DType::bfloat16;

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32: return 4;
    case DType::float64:
    case DType::int64: return 8;
    case DType::bfloat16: return 2;
    case DType::uint8:
    case DType::boolean: return 1;
  }
  return 0;
}

// "float32", ..., "bool", "bfloat16"
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
    case DType::uint8: return "uint8";
    case DType::boolean: return "bool";
    case DType::bfloat16: return "bfloat16";
  }
  return "?";
}

// float32, float64 or bfloat16.
constexpr bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16;
}

// Calls `f.template operator()<T>()` with the element type of `dtype`.
template <class F>
constexpr decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f.template operator()<float>();
    case DType::float64: return f.template operator()<double>();
    case DType::int32: return f.template operator()<std::int32_t>();
    case DType::int64: return f.template operator()<std::int64_t>();
    case DType::uint8: return f.template operator()<std::uint8_t>();
    case DType::boolean: return f.template operator()<bool>();
    case DType::bfloat16: break;
  }
  return f.template operator()<bfloat16>();
}

}  // namespace replicator
