// SPDX-License-Identifier: Apache-2.0
// Sentences of the compiler for tensors of integers or bool where a function takes floating types only.
#pragma once

#include <cstdint>

#include <replicator/graph/tensor.hpp>

namespace replicator {

namespace detail {
template <class T>
concept NotFloating = Element<T> && !FloatingElement<T>;
}  // namespace detail

#define REPLICATOR_REFUSE(function)                                                                                    \
  template <detail::NotFloating T, class... More>                                                                      \
  Tensor<T> function(Tensor<T> x, const More&...) {                                                                    \
    static_assert(sizeof(T) == 0, "replicator: " #function " takes a floating type: rp::cast<float>(x), for example"); \
    return x;                                                                                                          \
  }
REPLICATOR_REFUSE(sqrt)
REPLICATOR_REFUSE(exp)
REPLICATOR_REFUSE(log)
REPLICATOR_REFUSE(tanh)
REPLICATOR_REFUSE(erf)
REPLICATOR_REFUSE(sin)
REPLICATOR_REFUSE(cos)
REPLICATOR_REFUSE(floor)
REPLICATOR_REFUSE(ceil)
REPLICATOR_REFUSE(round)
REPLICATOR_REFUSE(pow)
REPLICATOR_REFUSE(sigmoid)
REPLICATOR_REFUSE(log_sigmoid)
REPLICATOR_REFUSE(softplus)
REPLICATOR_REFUSE(silu)
REPLICATOR_REFUSE(gelu)
REPLICATOR_REFUSE(relu6)
REPLICATOR_REFUSE(hardsigmoid)
REPLICATOR_REFUSE(hardswish)
REPLICATOR_REFUSE(leaky_relu)
REPLICATOR_REFUSE(elu)
REPLICATOR_REFUSE(softmax)
REPLICATOR_REFUSE(log_softmax)
REPLICATOR_REFUSE(log_sum_exp)
REPLICATOR_REFUSE(accuracy)
REPLICATOR_REFUSE(softmax_cross_entropy)
REPLICATOR_REFUSE(sigmoid_cross_entropy)
REPLICATOR_REFUSE(mean_squared_error)
REPLICATOR_REFUSE(dropout)
#undef REPLICATOR_REFUSE

}  // namespace replicator
