// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::compiled: replicator.hpp looks for it. What stands below is
// compiled there too, so that no file of the user's has to.
#pragma once

#include <replicator/graph/layout_copy.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>

namespace replicator {

extern template struct AnyOperation::Model<Map>;
extern template struct AnyOperation::Model<Reduce>;
extern template struct AnyOperation::Model<Reshape>;
extern template struct AnyOperation::Model<StopGradient>;
extern template struct AnyOperation::Model<Moments>;
extern template struct AnyOperation::Model<Matmul>;
extern template struct AnyOperation::Model<Convolution>;
extern template struct AnyOperation::Model<ConvolutionBackwardData>;
extern template struct AnyOperation::Model<ConvolutionBackwardWeights>;
extern template struct AnyOperation::Model<MaxPool>;
extern template struct AnyOperation::Model<MaxPoolSpread>;
extern template struct AnyOperation::Model<MaxPoolPick>;
extern template struct AnyOperation::Model<AveragePool>;
extern template struct AnyOperation::Model<AveragePoolTranspose>;
extern template struct AnyOperation::Model<Transpose>;
extern template struct AnyOperation::Model<Slice>;
extern template struct AnyOperation::Model<Pad>;
extern template struct AnyOperation::Model<Concat>;
extern template struct AnyOperation::Model<ArgMax>;
extern template struct AnyOperation::Model<Observe>;
extern template struct AnyOperation::Model<Gather>;
extern template struct AnyOperation::Model<ScatterAdd>;
extern template struct AnyOperation::Model<CumulativeSum>;
extern template struct AnyOperation::Model<TopK>;
extern template struct AnyOperation::Model<Upsample>;
extern template struct AnyOperation::Model<UpsampleTranspose>;
extern template struct AnyOperation::Model<Random>;
extern template struct AnyOperation::Model<LayoutCopy>;

}  // namespace replicator
