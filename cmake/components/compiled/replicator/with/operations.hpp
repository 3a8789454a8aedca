// SPDX-License-Identifier: Apache-2.0
// The operations of ops/ among these instantiations.

namespace replicator {

REPLICATOR_TEMPLATE struct AnyOperation::Model<Reshape>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<StopGradient>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Moments>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Matmul>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Convolution>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<ConvolutionBackwardData>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<ConvolutionBackwardWeights>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<MaxPool>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<MaxPoolSpread>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<MaxPoolPick>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<AveragePool>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<AveragePoolTranspose>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Transpose>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Slice>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Pad>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Concat>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<ArgMax>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<TopK>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Observe>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Gather>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<ScatterAdd>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<CumulativeSum>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Resize>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<ResizeTranspose>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Random>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<AdamUpdate>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Sigmoid>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Softplus>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<SigmoidCrossEntropy>;

REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Reshape);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(StopGradient);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Moments);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Matmul);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Convolution);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(ConvolutionBackwardData);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(ConvolutionBackwardWeights);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(MaxPool);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(MaxPoolSpread);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(MaxPoolPick);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(AveragePool);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(AveragePoolTranspose);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Transpose);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Slice);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Pad);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Concat);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(ArgMax);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(TopK);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Observe);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Gather);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(ScatterAdd);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(CumulativeSum);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Resize);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(ResizeTranspose);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Random);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(AdamUpdate);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Sigmoid);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Softplus);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(SigmoidCrossEntropy);

REPLICATOR_TEMPLATE std::vector<AnyTensor> AdamUpdate::expand<>(const ExpansionContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> Slice::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> Pad::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE AnyTensor Pad::sum<>(Graph&, std::span<const AnyTensor>, Location);
REPLICATOR_TEMPLATE std::vector<AnyTensor> Concat::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> Softmax::expand<>(const ExpansionContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> detail::Attention::expand<>(const ExpansionContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> detail::Attention::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> detail::AttentionGradient::expand<>(const ExpansionContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> detail::AttentionGradient::gradient<>(const GradientContext&) const;

}  // namespace replicator
