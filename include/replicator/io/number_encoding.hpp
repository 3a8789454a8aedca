// SPDX-License-Identifier: Apache-2.0
// Numbers as files store them: more types than tensors have, in either byte order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <string>
#include <string_view>
#include <type_traits>

namespace replicator::io::detail {

enum class Stored : std::uint8_t {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  int64,
  float32,
  float64
};

template <class F>
constexpr decltype(auto) visit_stored(Stored stored, F&& f) {
  switch (stored) {
    case Stored::boolean: return f.template operator()<bool>();
    case Stored::uint8: return f.template operator()<std::uint8_t>();
    case Stored::int8: return f.template operator()<std::int8_t>();
    case Stored::uint16: return f.template operator()<std::uint16_t>();
    case Stored::int16: return f.template operator()<std::int16_t>();
    case Stored::uint32: return f.template operator()<std::uint32_t>();
    case Stored::int32: return f.template operator()<std::int32_t>();
    case Stored::int64: return f.template operator()<std::int64_t>();
    case Stored::float32: return f.template operator()<float>();
    case Stored::float64: break;
  }
  return f.template operator()<double>();
}

// True if every value of S is exactly representable as T.
template <class S, class T>
constexpr bool fits_into() {
  if constexpr (std::is_same_v<S, T>) return true;
  else if constexpr (std::is_same_v<S, bool> || std::is_same_v<T, bool>) return false;
  else
    return std::numeric_limits<S>::digits <= std::numeric_limits<T>::digits && (std::is_integral_v<S> || std::is_floating_point_v<T>)&&(std::is_unsigned_v<S> || std::is_signed_v<T>);
}

constexpr std::size_t size_of(Stored stored) {
  return detail::visit_stored(stored, [&]<class S>() { return sizeof(S); });
}
constexpr std::string_view name_of(Stored stored) {
  constexpr std::string_view names[] = {"bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float32", "float64"};
  return names[static_cast<std::size_t>(stored)];
}

// True if every value of the stored type is exactly representable as T: the same type, or a wider one.
template <Element T>
constexpr bool can_hold(Stored stored) {
  return detail::visit_stored(stored, [&]<class S>() { return detail::fits_into<S, T>(); });
}
// Throws DataError that names the file and both types unless can_hold<T>(stored).
template <Element T>
void require_hold(const std::string& path, Stored stored) {
  if (!can_hold<T>(stored))
    throw DataError{path + ": it holds " + std::string{name_of(stored)} + ", but was asked for as " +
                    std::string{replicator::name_of(dtype_of<T>)} + ": ask for the same type or one that holds all its values"};
}

template <class S>
S load_one(bool big_endian, const std::byte* from) {
  if constexpr (std::is_same_v<S, bool>) {
    return *from != std::byte{0};
  } else {
    std::byte bytes[sizeof(S)];
    std::memcpy(bytes, from, sizeof(S));
    if (big_endian) std::reverse(bytes, bytes + sizeof(S));
    S value;
    std::memcpy(&value, bytes, sizeof(S));
    return value;
  }
}
template <class S, Element T>
void load_as(bool big_endian, const std::byte* from, T* to, std::size_t count) {
  if constexpr (fits_into<S, T>()) {
    for (std::size_t i = 0; i < count; ++i, from += sizeof(S)) to[i] = static_cast<T>(load_one<S>(big_endian, from));
  }
}

// Converts `count` numbers at `from`, which need not be aligned. Exact. Only if can_hold<T>(stored).
template <Element T>
void load(Stored stored, bool big_endian, const std::byte* from, T* to, std::size_t count) {
  detail::visit_stored(stored, [&]<class S>() { detail::load_as<S>(big_endian, from, to, count); });
}

// Reads an unsigned little-endian (big-endian) number of sizeof(U) bytes.
template <class U>
U load_little(const std::byte* from) {
  U value = 0;
  for (std::size_t i = sizeof(U); i-- > 0;) value = static_cast<U>(value << (sizeof(U) > 1 ? 8 : 0) | std::to_integer<U>(from[i]));
  return value;
}
template <class U>
U load_big(const std::byte* from) {
  U value = 0;
  for (std::size_t i = 0; i < sizeof(U); ++i) value = static_cast<U>(value << (sizeof(U) > 1 ? 8 : 0) | std::to_integer<U>(from[i]));
  return value;
}

// Throws DataError "<path>: byte 17: ...".
[[noreturn]] inline void refuse(const std::string& path, std::uint64_t offset, const std::string& found) {
  throw DataError{path + ": byte " + std::to_string(offset) + ": " + found};
}

}  // namespace replicator::io::detail
