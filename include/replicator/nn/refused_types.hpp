// SPDX-License-Identifier: Apache-2.0
// Sentences of the compiler for tensors of integers or bool that are given to a layer.
#pragma once

#include <source_location>
#include <string_view>

#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/conv1d.hpp>
#include <replicator/nn/conv2d.hpp>
#include <replicator/nn/conv_transpose2d.hpp>
#include <replicator/nn/group_norm.hpp>
#include <replicator/nn/layer_norm.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/nn/recurrent.hpp>
#include <replicator/nn/rms_norm.hpp>
#include <replicator/ops/refused_types.hpp>

namespace replicator::nn {

#define REPLICATOR_REFUSE(layer, Options)                                                                           \
  template <replicator::detail::NotFloating T>                                                                      \
  Tensor<T> layer(ReplicaContext&, Tensor<T> x, std::string_view, const Options& = {}, std::source_location = {}) { \
    static_assert(sizeof(T) == 0, "replicator: nn::" #layer                                                         \
                                  " takes a floating type: rp::cast<float>(x), for example. "                       \
                                  "nn::embedding takes indices");                                                   \
    return x;                                                                                                       \
  }
REPLICATOR_REFUSE(linear, LinearOptions)
REPLICATOR_REFUSE(conv1d, Conv1dOptions)
REPLICATOR_REFUSE(conv2d, Conv2dOptions)
REPLICATOR_REFUSE(conv_transpose2d, ConvTranspose2dOptions)
REPLICATOR_REFUSE(batch_norm, BatchNormOptions)
REPLICATOR_REFUSE(layer_norm, LayerNormOptions)
REPLICATOR_REFUSE(group_norm, GroupNormOptions)
REPLICATOR_REFUSE(instance_norm, InstanceNormOptions)
REPLICATOR_REFUSE(rms_norm, RmsNormOptions)
REPLICATOR_REFUSE(gru, RecurrentOptions)
REPLICATOR_REFUSE(lstm, RecurrentOptions)
#undef REPLICATOR_REFUSE

}  // namespace replicator::nn
