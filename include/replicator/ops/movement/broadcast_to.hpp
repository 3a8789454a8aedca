// SPDX-License-Identifier: Apache-2.0
// Repeats a tensor along axes. Any dtype.
#pragma once

#include <source_location>
#include <string>
#include <utility>

#include <replicator/graph/tensor.hpp>

namespace replicator {

// Repeats x along axes of extent 1, or along new leading axes. Throws BuildError where x does not fit.
template <Element T>
Tensor<T> broadcast_to(Tensor<T> x, const Shape& shape, std::source_location where = std::source_location::current()) {
  if (const auto both = broadcast(x.shape(), shape); !both || !(*both == shape))
    throw BuildError{detail::call_text(x.graph().replica(), "broadcast_to", where) + ": asked for the shape " + shape.text() +
                     ", found " + x.any().type().text() + ": from the last axis on, each extent must be 1 or that of the shape"};
  detail::Expression e;
  e.compute = detail::compute_type(dtype_of<T>);
  e.inputs = 1;
  e.outputs = {e.input(0)};
  const AnyTensor any = x;
  return Tensor<T>{map_node(x.graph(), std::move(e), {&any, 1}, shape, dtype_of<T>, where)};
}

}  // namespace replicator
