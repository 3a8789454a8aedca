// SPDX-License-Identifier: Apache-2.0
// A numeric literal of the user's program. It is converted once the element type is known.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <replicator/core/dtype.hpp>
#include <replicator/core/number_text.hpp>
#include <replicator/core/real.hpp>

namespace replicator {

namespace detail {
template <class T>
struct NumberIn {};
template <class T>
requires std::is_enum_v<T>
struct NumberIn<T> : std::underlying_type<T> {
};
template <class T>
requires requires { typename T::value_type; }
struct NumberIn<T> {
  using type = typename T::value_type;
};
// An enumerator without its own scope, a std::atomic and the like: what converts to the arithmetic type that it holds.
template <class T>
concept HoldsNumber = std::is_arithmetic_v<typename NumberIn<T>::type> && std::is_convertible_v<const T&, typename NumberIn<T>::type>;
}  // namespace detail

// Keeps integers up to int64 exact, so that no 64-bit id or hash is rounded. Everything else is stored as a double.
class Number {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr Number(T value) {  // NOLINT: implicit on purpose
    if constexpr (std::is_integral_v<T>) is_whole_ = std::is_signed_v<T> || static_cast<std::uint64_t>(value) <= 0x7FFF'FFFF'FFFF'FFFF;
    if constexpr (std::is_integral_v<T>) whole_ = static_cast<std::int64_t>(value);
    if (!is_whole_) real_ = static_cast<double>(value);
  }
  template <detail::HoldsNumber T>
  constexpr Number(const T& value) : Number(static_cast<typename detail::NumberIn<T>::type>(value)) {}  // NOLINT: implicit on purpose
  constexpr Number(bfloat16 value) : real_{static_cast<double>(static_cast<float>(value))} {}           // NOLINT: implicit on purpose

  constexpr double real() const { return is_whole_ ? static_cast<double>(whole_) : real_; }
  // Rounds towards zero. Values beyond int64 become its nearest limit, and NaN becomes 0, as in rp::cast.
  constexpr std::int64_t whole() const {
    if (is_whole_) return whole_;
    if (real_ >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
    if (real_ <= -0x1p63) return std::numeric_limits<std::int64_t>::min();
    return real_ == real_ ? static_cast<std::int64_t>(real_) : 0;
  }
  // As an element of type T. Narrower integers take the low bits, as in expressions.
  template <Element T>
  constexpr T as() const {
    if constexpr (std::is_same_v<T, bool>) return real() != 0;
    else if constexpr (std::is_integral_v<T>) return static_cast<T>(whole());
    else return static_cast<T>(real());
  }

  // Whether as<T>() is this number: a whole one within the bounds of an integer T, 0 or 1 for bool. A floating T rounds, so only
  // its bounds count.
  template <Element T>
  constexpr bool fits() const {
    if constexpr (std::is_same_v<T, bool>) {
      return real() == 0 || real() == 1;
    } else if constexpr (std::is_integral_v<T>) {
      const bool whole_number = is_whole_ || (real_ >= -0x1p63 && real_ < 0x1p63 && static_cast<double>(whole()) == real_);
      return whole_number && whole() >= std::numeric_limits<T>::min() && whole() <= std::numeric_limits<T>::max();
    } else {
      return !detail::is_finite(real()) || detail::is_finite(static_cast<double>(as<T>()));
    }
  }

  // An integer beyond int64 as the int64 with the same bits, for operations on bits. Other numbers stay.
  constexpr Number same_bits() const { return whole_ != 0 ? Number{whole_} : *this; }
  // Whether it was written as an integer, up to the limits of int64.
  constexpr bool is_whole() const { return is_whole_; }

  // 2 and 2.0 are equal: these two values determine the result for every element type.
  template <class V>
  void describe(V& v) const {
    v("real", real());
    v("whole", whole());
  }
  std::string text() const { return is_whole_ ? std::to_string(whole_) : std::to_string(real_); }

  friend constexpr bool operator==(Number a, Number b) { return a.real() == b.real() && a.whole() == b.whole(); }

 private:
  bool is_whole_ = false;
  std::int64_t whole_ = 0;  // of an integer beyond int64: its bits
  double real_ = 0;
};

namespace detail {
// "0.5, which ..." The end of a sentence about a number that is no element of a tensor of integers.
template <class = void>
std::string unfit_number(Number number, DType integers) {
  return number.is_whole() ? number.text() + ", which " + std::string{name_of(integers)} + " cannot hold: rp::cast the tensor to a larger type first"
                           : number_text(number.real()) + ", which is of a floating type or beyond int64: write a whole number without a point, or rp::cast<float> the tensor first";
}
}  // namespace detail

}  // namespace replicator
