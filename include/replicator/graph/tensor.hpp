// SPDX-License-Identifier: Apache-2.0
// The typed handle that step functions work with, and its operators.
#pragma once

#include <concepts>
#include <source_location>

#include <replicator/graph/map_gradient.hpp>  // Map and Reduce refer to their gradients

namespace replicator {

// A value in one replica's graph. Copying copies the handle. Operators broadcast as NumPy does; they
// throw BuildError with the user's line where the shapes do not fit.
template <Element T>
class Tensor {
 public:
  using element_type = T;

  // Throws BuildError if the dtype differs.
  explicit Tensor(AnyTensor any) : any_{any} {
    if (any.dtype() != dtype_of<T>)
      throw BuildError{"a tensor of " + any.type().text() + " was used as " + std::string{name_of(dtype_of<T>)} + ": cast it with rp::cast"};
  }

  const AnyTensor& any() const { return any_; }
  operator AnyTensor() const { return any_; }  // NOLINT: implicit on purpose
  Graph& graph() const { return any_.graph(); }
  const Shape& shape() const { return any_.shape(); }

  friend Tensor operator+(located<Tensor> a, located<Tensor> b) { return binary(ScalarOp::add, a, b); }
  friend Tensor operator-(located<Tensor> a, located<Tensor> b) { return binary(ScalarOp::subtract, a, b); }
  friend Tensor operator*(located<Tensor> a, located<Tensor> b) { return binary(ScalarOp::multiply, a, b); }
  friend Tensor operator/(located<Tensor> a, located<Tensor> b) { return binary(ScalarOp::divide, a, b); }

  friend Tensor operator+(located<Tensor> a, T b) { return scalar_right(ScalarOp::add, a, b); }
  friend Tensor operator-(located<Tensor> a, T b) { return scalar_right(ScalarOp::subtract, a, b); }
  friend Tensor operator*(located<Tensor> a, T b) { return scalar_right(ScalarOp::multiply, a, b); }
  friend Tensor operator/(located<Tensor> a, T b) { return scalar_right(ScalarOp::divide, a, b); }

  friend Tensor operator+(T a, located<Tensor> b) { return scalar_left(ScalarOp::add, a, b); }
  friend Tensor operator-(T a, located<Tensor> b) { return scalar_left(ScalarOp::subtract, a, b); }
  friend Tensor operator*(T a, located<Tensor> b) { return scalar_left(ScalarOp::multiply, a, b); }
  friend Tensor operator/(T a, located<Tensor> b) { return scalar_left(ScalarOp::divide, a, b); }

  friend Tensor operator-(located<Tensor> a) { return Tensor{apply(ScalarOp::negate, {a.value.any_}, a.where)}; }

 private:
  static Tensor binary(ScalarOp op, const located<Tensor>& a, const located<Tensor>& b) {
    return Tensor{apply(op, {a.value.any_, b.value.any_}, a.where)};
  }
  static Tensor scalar_right(ScalarOp op, const located<Tensor>& a, T b) {
    return Tensor{apply(op, a.value.any_, b, a.where)};
  }
  static Tensor scalar_left(ScalarOp op, T a, const located<Tensor>& b) {
    Expression e;
    e.compute = compute_type(dtype_of<T>);
    e.inputs = 1;
    const auto scalar = e.constant(a);
    e.outputs = {e.apply(op, scalar, e.input(0))};
    return Tensor{map_node(b.value.graph(), std::move(e), std::span{&b.value.any_, 1}, dtype_of<T>, b.where)};
  }

  AnyTensor any_;
};

}  // namespace replicator
