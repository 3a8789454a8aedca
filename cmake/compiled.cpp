// SPDX-License-Identifier: Apache-2.0
// The one file of replicator::compiled; the list of what it instantiates is that of replicator/with/compiled.hpp.
#include <replicator/everything.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>

namespace replicator {

template struct AnyOperation::Model<Map>;
template struct AnyOperation::Model<Reduce>;
template struct AnyOperation::Model<Reshape>;
template struct AnyOperation::Model<StopGradient>;
template struct AnyOperation::Model<Moments>;
template struct AnyOperation::Model<Matmul>;
template struct AnyOperation::Model<Convolution>;
template struct AnyOperation::Model<ConvolutionBackwardData>;
template struct AnyOperation::Model<ConvolutionBackwardWeights>;
template struct AnyOperation::Model<MaxPool>;
template struct AnyOperation::Model<MaxPoolSpread>;
template struct AnyOperation::Model<MaxPoolPick>;
template struct AnyOperation::Model<AveragePool>;
template struct AnyOperation::Model<AveragePoolTranspose>;
template struct AnyOperation::Model<Transpose>;
template struct AnyOperation::Model<Slice>;
template struct AnyOperation::Model<Pad>;
template struct AnyOperation::Model<Concat>;
template struct AnyOperation::Model<ArgMax>;
template struct AnyOperation::Model<Observe>;
template struct AnyOperation::Model<Gather>;
template struct AnyOperation::Model<ScatterAdd>;
template struct AnyOperation::Model<CumulativeSum>;
template struct AnyOperation::Model<TopK>;
template struct AnyOperation::Model<Upsample>;
template struct AnyOperation::Model<UpsampleTranspose>;
template struct AnyOperation::Model<Random>;
template struct AnyOperation::Model<LayoutCopy>;

}  // namespace replicator
