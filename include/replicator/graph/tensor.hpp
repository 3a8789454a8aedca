// SPDX-License-Identifier: Apache-2.0
// Tensor: the typed handle that step functions work with, and its operators.
#pragma once

#include <concepts>
#include <iosfwd>
#include <source_location>
#include <string_view>

#include <replicator/core/array.hpp>
#include <replicator/graph/map.hpp>
#if !__has_include(<replicator/with/compiled.hpp>)  // replicator::compiled holds the gradients of Map and Reduce
#include <replicator/graph/map_gradient.hpp>
#endif

namespace replicator {

namespace detail {
template <class T>
concept IntegerElement = Element<T> && std::integral<T> && !std::same_as<T, bool>;

// Throws BuildError for a tensor that was used as another element type.
template <class = void>
[[noreturn]] void refuse_element(const AnyTensor& tensor, DType used_as) {
  throw BuildError{"a tensor of " + tensor.type().text() + " was used as " + std::string{name_of(used_as)} + ": cast it with rp::cast"};
}
// Throws BuildError for a number beside a tensor of integers that does not fit these.
template <class = void>
[[noreturn]] void refuse_number(Number number, const AnyTensor& tensor, Location where, std::string_view title) {
  throw BuildError{call_text(tensor.graph().replica(), title, where) + ": found " + tensor.type().text() +
                   " and the number " + unfit_number(number, tensor.dtype())};
}
// The number. Beside integers it must be one of them; operations on bits take the low bits of any integer.
template <Element T>
Number checked(Number number, const AnyTensor& tensor, Location where, std::string_view title, bool for_bits = false) {
  if (for_bits) number = number.same_bits();
  if constexpr (std::integral<T>)
    if (!number.is_whole() || !(for_bits || number.fits<T>())) refuse_number(number, tensor, where, title);
  return number;
}
}  // namespace detail

// A value in one replica's graph. Copying copies the handle. Operators broadcast as in NumPy; they throw BuildError with
// the user's line where the shapes do not fit. Nothing is cast implicitly: tensors of two element types, and arrays, do not compile. After x += y, x is the handle of x + y.
template <Element T>
class Tensor {
 public:
  using element_type = T;

  // Throws BuildError for another dtype.
  explicit Tensor(AnyTensor any) : any_{any} {
    if (any.dtype() != dtype_of<T>) detail::refuse_element(any, dtype_of<T>);
  }

  const AnyTensor& any() const { return any_; }
  operator AnyTensor() const { return any_; }  // NOLINT: implicit on purpose
  Graph& graph() const { return any_.graph(); }
  const Shape& shape() const { return any_.shape(); }
  // Prints the type, "float32[16, 10]": all that is known while the step is traced. rp::print prints values.
  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const Tensor& x) {
    return out << x.any_.type().text();
  }

  friend Tensor operator+(located<Tensor> a, located<Tensor> b) { return binary(detail::ScalarOp::add, a, b); }
  friend Tensor operator-(located<Tensor> a, located<Tensor> b) { return binary(detail::ScalarOp::subtract, a, b); }
  friend Tensor operator*(located<Tensor> a, located<Tensor> b) { return binary(detail::ScalarOp::multiply, a, b); }
  friend Tensor operator/(located<Tensor> a, located<Tensor> b) { return binary(detail::ScalarOp::divide, a, b); }

  friend Tensor operator+(located<Tensor> a, Number b) { return scalar_right(detail::ScalarOp::add, a, b); }
  friend Tensor operator-(located<Tensor> a, Number b) { return scalar_right(detail::ScalarOp::subtract, a, b); }
  friend Tensor operator*(located<Tensor> a, Number b) { return scalar_right(detail::ScalarOp::multiply, a, b); }
  friend Tensor operator/(located<Tensor> a, Number b) { return scalar_right(detail::ScalarOp::divide, a, b); }

  friend Tensor operator+(Number a, located<Tensor> b) { return scalar_left(detail::ScalarOp::add, a, b); }
  friend Tensor operator-(Number a, located<Tensor> b) { return scalar_left(detail::ScalarOp::subtract, a, b); }
  friend Tensor operator*(Number a, located<Tensor> b) { return scalar_left(detail::ScalarOp::multiply, a, b); }
  friend Tensor operator/(Number a, located<Tensor> b) { return scalar_left(detail::ScalarOp::divide, a, b); }

  // The remainder of integers, with the sign of a, as in C++. x % 0 is x.
  friend Tensor operator%(located<Tensor> a, located<Tensor> b) requires detail::IntegerElement<T> { return remainder(a, b); }
  friend Tensor operator%(located<Tensor> a, Number b) requires detail::IntegerElement<T> { return remainder(a, like(a, b, "operator%")); }
  friend Tensor operator%(Number a, located<Tensor> b) requires detail::IntegerElement<T> { return remainder(like(b, a, "operator%"), b); }

  // Operations on the bits of integers. >> keeps the sign. A shift by a negative number, or by all bits of the type and more, leaves
  // none of them: 0, and -1 for >> of a negative number.
  friend Tensor operator&(located<Tensor> a, located<Tensor> b) requires detail::IntegerElement<T> { return binary(detail::ScalarOp::bit_and, a, b); }
  friend Tensor operator|(located<Tensor> a, located<Tensor> b) requires detail::IntegerElement<T> { return binary(detail::ScalarOp::bit_or, a, b); }
  friend Tensor operator^(located<Tensor> a, located<Tensor> b) requires detail::IntegerElement<T> {
    return binary(detail::ScalarOp::bit_exclusive_or, a, b);
  }
  friend Tensor operator<<(located<Tensor> a, located<Tensor> b) requires detail::IntegerElement<T> { return binary(detail::ScalarOp::shift_left, a, b); }
  friend Tensor operator>>(located<Tensor> a, located<Tensor> b) requires detail::IntegerElement<T> { return binary(detail::ScalarOp::shift_right, a, b); }
  friend Tensor operator&(located<Tensor> a, Number b) requires detail::IntegerElement<T> { return scalar_right(detail::ScalarOp::bit_and, a, b); }
  friend Tensor operator|(located<Tensor> a, Number b) requires detail::IntegerElement<T> { return scalar_right(detail::ScalarOp::bit_or, a, b); }
  friend Tensor operator^(located<Tensor> a, Number b) requires detail::IntegerElement<T> { return scalar_right(detail::ScalarOp::bit_exclusive_or, a, b); }
  friend Tensor operator<<(located<Tensor> a, Number b) requires detail::IntegerElement<T> { return scalar_right(detail::ScalarOp::shift_left, a, b); }
  friend Tensor operator>>(located<Tensor> a, Number b) requires detail::IntegerElement<T> { return scalar_right(detail::ScalarOp::shift_right, a, b); }
  friend Tensor operator&(Number a, located<Tensor> b) requires detail::IntegerElement<T> { return scalar_left(detail::ScalarOp::bit_and, a, b); }
  friend Tensor operator|(Number a, located<Tensor> b) requires detail::IntegerElement<T> { return scalar_left(detail::ScalarOp::bit_or, a, b); }
  friend Tensor operator^(Number a, located<Tensor> b) requires detail::IntegerElement<T> { return scalar_left(detail::ScalarOp::bit_exclusive_or, a, b); }
  friend Tensor operator<<(Number a, located<Tensor> b) requires detail::IntegerElement<T> { return scalar_left(detail::ScalarOp::shift_left, a, b); }
  friend Tensor operator>>(Number a, located<Tensor> b) requires detail::IntegerElement<T> { return scalar_left(detail::ScalarOp::shift_right, a, b); }
  friend Tensor operator~(located<Tensor> a) requires detail::IntegerElement<T> {
    return Tensor{apply(detail::ScalarOp::bit_exclusive_or, a.value.any_, -1, a.where, "operator~")};
  }

  friend Tensor operator-(located<Tensor> a) { return Tensor{apply(detail::ScalarOp::negate, {a.value.any_}, a.where, "operator-")}; }

  Tensor& operator+=(located<Tensor> b) { return *this = Tensor{apply(detail::ScalarOp::add, {any_, b.value.any_}, b.where, "operator+=")}; }
  Tensor& operator-=(located<Tensor> b) { return *this = Tensor{apply(detail::ScalarOp::subtract, {any_, b.value.any_}, b.where, "operator-=")}; }
  Tensor& operator*=(located<Tensor> b) { return *this = Tensor{apply(detail::ScalarOp::multiply, {any_, b.value.any_}, b.where, "operator*=")}; }
  Tensor& operator/=(located<Tensor> b) { return *this = Tensor{apply(detail::ScalarOp::divide, {any_, b.value.any_}, b.where, "operator/=")}; }
  Tensor& operator+=(located<Number> b) { return *this = Tensor{apply(detail::ScalarOp::add, any_, detail::checked<T>(b.value, any_, b.where, "operator+="), b.where, "operator+=")}; }
  Tensor& operator-=(located<Number> b) { return *this = Tensor{apply(detail::ScalarOp::subtract, any_, detail::checked<T>(b.value, any_, b.where, "operator-="), b.where, "operator-=")}; }
  Tensor& operator*=(located<Number> b) { return *this = Tensor{apply(detail::ScalarOp::multiply, any_, detail::checked<T>(b.value, any_, b.where, "operator*="), b.where, "operator*=")}; }
  Tensor& operator/=(located<Number> b) { return *this = Tensor{apply(detail::ScalarOp::divide, any_, detail::checked<T>(b.value, any_, b.where, "operator/="), b.where, "operator/=")}; }

  // Elementwise comparisons. With a NaN operand, != is true and the others are false; -0 equals 0.
  friend Tensor<bool> operator<(located<Tensor> a, located<Tensor> b) { return compare(detail::ScalarOp::less, a, b, "operator<"); }
  friend Tensor<bool> operator<=(located<Tensor> a, located<Tensor> b) { return compare(detail::ScalarOp::less_equal, a, b, "operator<="); }
  friend Tensor<bool> operator>(located<Tensor> a, located<Tensor> b) { return compare(detail::ScalarOp::less, b, a, "operator>"); }
  friend Tensor<bool> operator>=(located<Tensor> a, located<Tensor> b) { return compare(detail::ScalarOp::less_equal, b, a, "operator>="); }
  friend Tensor<bool> operator==(located<Tensor> a, located<Tensor> b) { return compare(detail::ScalarOp::equal, a, b, "operator=="); }
  friend Tensor<bool> operator!=(located<Tensor> a, located<Tensor> b) { return !compare(detail::ScalarOp::equal, a, b, "operator!="); }

  friend Tensor<bool> operator<(located<Tensor> a, Number b) { return compare(detail::ScalarOp::less, a, like(a, b, "operator<"), "operator<"); }
  friend Tensor<bool> operator<=(located<Tensor> a, Number b) { return compare(detail::ScalarOp::less_equal, a, like(a, b, "operator<="), "operator<="); }
  friend Tensor<bool> operator>(located<Tensor> a, Number b) { return compare(detail::ScalarOp::less, like(a, b, "operator>"), a, "operator>"); }
  friend Tensor<bool> operator>=(located<Tensor> a, Number b) { return compare(detail::ScalarOp::less_equal, like(a, b, "operator>="), a, "operator>="); }
  friend Tensor<bool> operator==(located<Tensor> a, Number b) { return compare(detail::ScalarOp::equal, a, like(a, b, "operator=="), "operator=="); }
  friend Tensor<bool> operator!=(located<Tensor> a, Number b) { return !compare(detail::ScalarOp::equal, a, like(a, b, "operator!="), "operator!="); }

  friend Tensor<bool> operator<(Number a, located<Tensor> b) { return compare(detail::ScalarOp::less, like(b, a, "operator<"), b, "operator<"); }
  friend Tensor<bool> operator<=(Number a, located<Tensor> b) { return compare(detail::ScalarOp::less_equal, like(b, a, "operator<="), b, "operator<="); }
  friend Tensor<bool> operator>(Number a, located<Tensor> b) { return compare(detail::ScalarOp::less, b, like(b, a, "operator>"), "operator>"); }
  friend Tensor<bool> operator>=(Number a, located<Tensor> b) { return compare(detail::ScalarOp::less_equal, b, like(b, a, "operator>="), "operator>="); }
  friend Tensor<bool> operator==(Number a, located<Tensor> b) { return compare(detail::ScalarOp::equal, like(b, a, "operator=="), b, "operator=="); }
  friend Tensor<bool> operator!=(Number a, located<Tensor> b) { return !compare(detail::ScalarOp::equal, like(b, a, "operator!="), b, "operator!="); }

  // Elementwise logic, for bool. The left operand is no located<Tensor>: with the conversion to bool below, C++'s own
  // operators would then match equally well.
  friend Tensor operator&&(Tensor a, located<Tensor> b) requires std::same_as<T, bool> {
    return Tensor{apply(detail::ScalarOp::logical_and, {a.any_, b.value.any_}, b.where, "operator&&")};
  }
  friend Tensor operator||(Tensor a, located<Tensor> b) requires std::same_as<T, bool> {
    return Tensor{apply(detail::ScalarOp::logical_or, {a.any_, b.value.any_}, b.where, "operator||")};
  }
  friend Tensor operator!(Tensor a) requires std::same_as<T, bool> {
    return Tensor{apply(detail::ScalarOp::logical_not, {a.any_}, a.graph().node(a.any_.value()).where)};
  }

  // A step function has no values to branch on while it is traced.
  template <class B>
  requires std::same_as<B, bool>
  explicit operator B() const {
    static_assert(!std::same_as<B, bool>,
                  "replicator: a rp::Tensor has no value while the step function is traced, so it cannot decide an `if`: compute both sides and take "
                  "rp::select(condition, a, b). && and || take two rp::Tensor<bool>");
    return false;
  }
  // An element in brackets is refused by a sentence of the compiler.
  template <class I>
  Tensor operator[](I&&) const {
    static_assert(!std::same_as<I, I>,
                  "replicator: a rp::Tensor takes no [ ]: rp::slice_axis(x, 0, begin, end) takes a part, rp::unbind(x) all rows, rp::gather(x, indices) some, and "
                  "x.shape()[axis] is an extent");
    return *this;
  }

 private:
  // What errors call the operator.
  static constexpr std::string_view operator_title(detail::ScalarOp op) {
    switch (op) {
      case detail::ScalarOp::add: return "operator+";
      case detail::ScalarOp::subtract: return "operator-";
      case detail::ScalarOp::multiply: return "operator*";
      case detail::ScalarOp::divide: return "operator/";
      case detail::ScalarOp::bit_and: return "operator&";
      case detail::ScalarOp::bit_or: return "operator|";
      case detail::ScalarOp::bit_exclusive_or: return "operator^";
      case detail::ScalarOp::shift_left: return "operator<<";
      case detail::ScalarOp::shift_right: return "operator>>";
      default: return detail::elementwise;
    }
  }
  static Tensor<bool> compare(detail::ScalarOp op, const located<Tensor>& a, const located<Tensor>& b, std::string_view title) {
    detail::Expression e;
    e.compute = detail::compute_type(dtype_of<T>);
    e.inputs = 2;
    e.outputs = {e.apply(op, e.input(0), e.input(1))};
    const AnyTensor operands[] = {a.value.any_, b.value.any_};
    return Tensor<bool>{detail::map_node(title, std::move(e), operands, DType::boolean, a.where)};
  }
  // The number as a tensor, at the line of `a`.
  static located<Tensor> like(const located<Tensor>& a, Number number, std::string_view title) {
    Graph& graph = detail::graph_of(a.value.any_, title, a.where);
    located<Tensor> result{Tensor{fill(graph, {dtype_of<T>, {}}, detail::checked<T>(number, a.value.any_, a.where, title), a.where)}};
    result.where = a.where;
    return result;
  }
  static Tensor binary(detail::ScalarOp op, const located<Tensor>& a, const located<Tensor>& b) {
    return Tensor{apply(op, {a.value.any_, b.value.any_}, a.where, operator_title(op))};
  }
  // a - a / b * b
  static Tensor remainder(const located<Tensor>& a, const located<Tensor>& b) {
    detail::Expression e;
    e.compute = detail::compute_type(dtype_of<T>);
    e.inputs = 2;
    const auto x = e.input(0), y = e.input(1);
    e.outputs = {e.apply(detail::ScalarOp::subtract, x, e.apply(detail::ScalarOp::multiply, e.apply(detail::ScalarOp::divide, x, y), y))};
    const AnyTensor operands[] = {a.value.any_, b.value.any_};
    return Tensor{detail::map_node("operator%", std::move(e), operands, dtype_of<T>, a.where)};
  }
  static Tensor scalar_right(detail::ScalarOp op, const located<Tensor>& a, Number b) {
    return Tensor{apply(op, a.value.any_, detail::checked<T>(b, a.value.any_, a.where, operator_title(op), detail::needs_integers(op)), a.where, operator_title(op))};
  }
  static Tensor scalar_left(detail::ScalarOp op, Number a, const located<Tensor>& b) {
    detail::Expression e;
    e.compute = detail::compute_type(dtype_of<T>);
    e.inputs = 1;
    const auto scalar = e.constant(detail::checked<T>(a, b.value.any_, b.where, operator_title(op), detail::needs_integers(op)));
    e.outputs = {e.apply(op, scalar, e.input(0))};
    return Tensor{detail::map_node(operator_title(op), std::move(e), std::span{&b.value.any_, 1}, dtype_of<T>, b.where)};
  }

  AnyTensor any_;
};

namespace detail {
template <class A, class B>
concept DifferentTypes = !std::same_as<A, B>;

template <class A, class B>
constexpr void refuse_types() {
  static_assert(std::same_as<A, B>, "replicator: rp::Tensors of two element types do not mix: rp::cast<T>(x) gives one of them the type of the other");
}
template <class A>
constexpr void refuse_array() {
  static_assert(!std::same_as<A, A>, "replicator: an rp::Array is no rp::Tensor: rp::constant(replica, array) makes it one");
}
}  // namespace detail

#define REPLICATOR_REFUSE(op, Result)                                                                     \
  template <class A, detail::DifferentTypes<A> B>                                                         \
  Result operator op(Tensor<A> a, Tensor<B>) { return detail::refuse_types<A, B>(), Result{a.any()}; }    \
  template <class A, class B>                                                                             \
  Result operator op(Tensor<A> a, const Array<B>&) { return detail::refuse_array<B>(), Result{a.any()}; } \
  template <class B, class A>                                                                             \
  Result operator op(const Array<B>&, Tensor<A> a) { return detail::refuse_array<B>(), Result{a.any()}; }
// Operands of two types, and arrays, are refused by a sentence of the compiler.
REPLICATOR_REFUSE(+, Tensor<A>)
REPLICATOR_REFUSE(-, Tensor<A>)
REPLICATOR_REFUSE(*, Tensor<A>)
REPLICATOR_REFUSE(/, Tensor<A>)
REPLICATOR_REFUSE(<, Tensor<bool>)
REPLICATOR_REFUSE(<=, Tensor<bool>)
REPLICATOR_REFUSE(>, Tensor<bool>)
REPLICATOR_REFUSE(>=, Tensor<bool>)
REPLICATOR_REFUSE(==, Tensor<bool>)
REPLICATOR_REFUSE(!=, Tensor<bool>)
#undef REPLICATOR_REFUSE
#define REPLICATOR_REFUSE(op)                                                                 \
  template <class A, detail::DifferentTypes<A> B>                                             \
  Tensor<A>& operator op(Tensor<A>& a, Tensor<B>) { return detail::refuse_types<A, B>(), a; } \
  template <class A, class B>                                                                 \
  Tensor<A>& operator op(Tensor<A>& a, const Array<B>&) { return detail::refuse_array<B>(), a; }
REPLICATOR_REFUSE(+=)
REPLICATOR_REFUSE(-=)
REPLICATOR_REFUSE(*=)
REPLICATOR_REFUSE(/=)
#undef REPLICATOR_REFUSE

}  // namespace replicator
