// SPDX-License-Identifier: Apache-2.0
// Symbol: the argument of a functor given to rp::map, which is called once while tracing. Arithmetic on symbols records an
// expression.
#pragma once

#include <concepts>
#include <string>

#include <replicator/core/error.hpp>
#include <replicator/graph/expression.hpp>

namespace replicator {

// A scalar in the expression that is being recorded.
class Symbol {
 public:
  Symbol(detail::Expression& expression, std::uint16_t index) : expression_{&expression}, index_{index} {}
  std::uint16_t index() const { return index_; }
  // A constant in the same expression. Throws BuildError where the expression is one of integers, and this is none.
  Symbol number(Number value) const {
    if (expression_->compute == DType::int32 && !value.fits<std::int32_t>()) refuse(value);
    return constant(value);
  }

  // A branch on a value cannot be recorded.
  template <class T>
  requires std::same_as<T, bool>
  explicit operator T() const {
    static_assert(!std::same_as<T, bool>,
                  "replicator: a functor given to rp::map is called once, on symbols: it cannot branch on a value; use rp::select(condition, a, b)");
    return false;
  }

  friend Symbol operator+(Symbol a, Symbol b) { return a.with(detail::ScalarOp::add, b); }
  friend Symbol operator-(Symbol a, Symbol b) { return a.with(detail::ScalarOp::subtract, b); }
  friend Symbol operator*(Symbol a, Symbol b) { return a.with(detail::ScalarOp::multiply, b); }
  friend Symbol operator/(Symbol a, Symbol b) { return a.with(detail::ScalarOp::divide, b); }
  friend Symbol operator<(Symbol a, Symbol b) { return a.with(detail::ScalarOp::less, b); }
  friend Symbol operator<=(Symbol a, Symbol b) { return a.with(detail::ScalarOp::less_equal, b); }
  friend Symbol operator>(Symbol a, Symbol b) { return b.with(detail::ScalarOp::less, a); }
  friend Symbol operator>=(Symbol a, Symbol b) { return b.with(detail::ScalarOp::less_equal, a); }
  friend Symbol operator==(Symbol a, Symbol b) { return a.with(detail::ScalarOp::equal, b); }
  friend Symbol operator!=(Symbol a, Symbol b) { return !(a == b); }
  friend Symbol operator&&(Symbol a, Symbol b) { return a.with(detail::ScalarOp::logical_and, b); }
  friend Symbol operator||(Symbol a, Symbol b) { return a.with(detail::ScalarOp::logical_or, b); }
  friend Symbol operator!(Symbol a) { return a.with(detail::ScalarOp::logical_not); }
  friend Symbol operator-(Symbol a) { return a.with(detail::ScalarOp::negate); }
  // The remainder of integers, with the sign of a, as in C++. x % 0 is x. Throws BuildError for floating numbers.
  friend Symbol operator%(Symbol a, Symbol b) {
    a.require_integers("%", "write a - b * floor(a / b)");
    return a - a / b * b;
  }
  // Operations on the bits of integers, as Tensor has them. They throw BuildError for floating numbers.
  friend Symbol operator&(Symbol a, Symbol b) { return a.bits("&", detail::ScalarOp::bit_and, b); }
  friend Symbol operator|(Symbol a, Symbol b) { return a.bits("|", detail::ScalarOp::bit_or, b); }
  friend Symbol operator^(Symbol a, Symbol b) { return a.bits("^", detail::ScalarOp::bit_exclusive_or, b); }
  friend Symbol operator<<(Symbol a, Symbol b) { return a.bits("<<", detail::ScalarOp::shift_left, b); }
  friend Symbol operator>>(Symbol a, Symbol b) { return a.bits(">>", detail::ScalarOp::shift_right, b); }
  friend Symbol operator~(Symbol a) { return a.bits("~", detail::ScalarOp::bit_exclusive_or, a.number(-1)); }

#define REPLICATOR_SCALAR_ON_EITHER_SIDE(op, symbol_of)                         \
  friend Symbol operator op(Symbol a, Number b) { return a op a.symbol_of(b); } \
  friend Symbol operator op(Number a, Symbol b) { return b.symbol_of(a) op b; }
  REPLICATOR_SCALAR_ON_EITHER_SIDE(+, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(-, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(*, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(/, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(%, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(&, word)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(|, word)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(^, word)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(<<, word)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(>>, word)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(<, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(<=, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(>, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(>=, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(==, number)
  REPLICATOR_SCALAR_ON_EITHER_SIDE(!=, number)
#undef REPLICATOR_SCALAR_ON_EITHER_SIDE

  friend Symbol abs(Symbol a) { return a.with(detail::ScalarOp::absolute); }
  friend Symbol sign(Symbol a) { return a.with(detail::ScalarOp::sign); }
  friend Symbol sqrt(Symbol a) { return a.with(detail::ScalarOp::square_root); }
  friend Symbol exp(Symbol a) { return a.with(detail::ScalarOp::exponential); }
  friend Symbol log(Symbol a) { return a.with(detail::ScalarOp::logarithm); }
  friend Symbol tanh(Symbol a) { return a.with(detail::ScalarOp::hyperbolic_tangent); }
  friend Symbol erf(Symbol a) { return a.with(detail::ScalarOp::error_function); }
  friend Symbol sin(Symbol a) { return a.with(detail::ScalarOp::sine); }
  friend Symbol cos(Symbol a) { return a.with(detail::ScalarOp::cosine); }
  friend Symbol floor(Symbol a) { return a.with(detail::ScalarOp::floor); }
  friend Symbol ceil(Symbol a) { return -floor(-a); }
  // The nearest whole number. Of two it is the even one. 0 has the sign of a: -(-1 - below) is below + 1, and -0 where below is -1.
  friend Symbol round(Symbol a) {
    if (!is_floating(a.expression_->compute)) return a;
    const Symbol below = floor(a), part = a - below, half = a.number(0.5);
    const Symbol up = part > half || (part == half && below != 2 * floor(below * half));
    return select(up, -(-1 - below), below);
  }
  friend Symbol relu(Symbol a) { return a.with(detail::ScalarOp::rectify); }
  friend Symbol min(Symbol a, Symbol b) { return a.with(detail::ScalarOp::minimum, b); }
  friend Symbol max(Symbol a, Symbol b) { return a.with(detail::ScalarOp::maximum, b); }
  friend Symbol pow(Symbol a, Symbol b) { return a.with(detail::ScalarOp::power, b); }
  friend Symbol min(Symbol a, Number b) { return min(a, a.number(b)); }
  friend Symbol max(Symbol a, Number b) { return max(a, a.number(b)); }
  friend Symbol min(Number a, Symbol b) { return min(b, a); }
  friend Symbol max(Number a, Symbol b) { return max(b, a); }
  friend Symbol pow(Symbol a, Number b) { return pow(a, a.number(b)); }
  friend Symbol pow(Number a, Symbol b) { return pow(b.number(a), b); }
  // a * b + c with one rounding.
  friend Symbol fma(Symbol a, Symbol b, Symbol c) {
    return {*a.expression_, a.expression_->apply(detail::ScalarOp::multiply_add, a.index_, b.index_, c.index_)};
  }
  // condition ? yes : no, element by element.
  friend Symbol select(Symbol condition, Symbol yes, Symbol no) {
    return {*condition.expression_, condition.expression_->apply(detail::ScalarOp::select, condition.index_, yes.index_, no.index_)};
  }
  friend Symbol select(Symbol condition, Number yes, Symbol no) { return select(condition, no.number(yes), no); }
  friend Symbol select(Symbol condition, Symbol yes, Number no) { return select(condition, yes, yes.number(no)); }
  friend Symbol select(Symbol condition, Number yes, Number no) { return select(condition, condition.number(yes), condition.number(no)); }

 private:
  void require_integers(const char* what, const char* mend) const {
    if (is_floating(expression_->compute))
      throw BuildError{std::string{what} + " takes integers, but the functor works on " + std::string{name_of(expression_->compute)} + ": " + mend};
  }
  // The same for an operation on bits, which takes the low bits of any integer.
  Symbol word(Number value) const { return constant(value.same_bits()); }
  Symbol constant(Number value) const {
    if (!is_floating(expression_->compute) && !value.is_whole()) refuse(value);
    return {*expression_, expression_->constant(value)};
  }
  [[noreturn]] void refuse(Number value) const {
    const DType compute = expression_->compute;
    throw BuildError{"the functor works on " + std::string{name_of(compute)} + ", and has the number " + detail::unfit_number(value, compute)};
  }
  Symbol bits(const char* what, detail::ScalarOp op, Symbol b) const {
    require_integers(what, "cast the tensors to int32 or int64 first");
    return with(op, b);
  }
  Symbol with(detail::ScalarOp op) const { return {*expression_, expression_->apply(op, index_)}; }
  Symbol with(detail::ScalarOp op, Symbol b) const { return {*expression_, expression_->apply(op, index_, b.index_)}; }

  detail::Expression* expression_;
  std::uint16_t index_;
};

}  // namespace replicator
