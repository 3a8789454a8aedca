// SPDX-License-Identifier: Apache-2.0
// The shapes and options that kernels of the three operations of a convolution get.
#pragma once

#include <replicator/graph/kernel.hpp>
#include <replicator/ops/convolution.hpp>

namespace replicator::detail {

// x [N, C, H, W], w [O, C / groups, KH, KW], y [N, O, OH, OW]. The result may be any of them.
struct ConvolutionShapes {
  ConvolutionOptions options;
  Shape x, w, y;
};

inline ConvolutionShapes shapes_of(const Convolution& op, const KernelRequest& r) {
  return {op.options, r.inputs[0].shape, r.inputs[1].shape, r.outputs[0].shape};
}
inline ConvolutionShapes shapes_of(const ConvolutionBackwardData& op, const KernelRequest& r) {
  return {op.options, op.x, r.inputs[1].shape, r.inputs[0].shape};
}
inline ConvolutionShapes shapes_of(const ConvolutionBackwardWeights& op, const KernelRequest& r) {
  return {op.options, r.inputs[0].shape, op.w, r.inputs[1].shape};
}

}  // namespace replicator::detail
