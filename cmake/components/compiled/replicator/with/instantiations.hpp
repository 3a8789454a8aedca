// SPDX-License-Identifier: Apache-2.0
// The list of instantiations in replicator::compiled. The including file defines REPLICATOR_TEMPLATE: as `extern
// template` in user files, as `template` in the unit that holds the code.

#include <replicator/with/operations.hpp>

namespace replicator {

REPLICATOR_TEMPLATE void detail::take_flags(Deployment&, std::span<const char* const>);
REPLICATOR_TEMPLATE void detail::take_only_flags(Deployment&, std::span<const char* const>);
REPLICATOR_TEMPLATE std::string detail::help_of_flags<Deployment>();
REPLICATOR_TEMPLATE std::vector<Tensor<float>> gradients(Tensor<float>, const std::vector<Tensor<float>>&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> all_reduce(Tensor<float>, Reduction, const CollectiveOptions&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> matmul(Tensor<float>, Tensor<float>, MatmulOptions, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> sum(Tensor<float>, const Axes&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> mean(Tensor<float>, const Axes&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> softmax_cross_entropy(Tensor<float>, Tensor<std::int32_t>, const CrossEntropyOptions&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> accuracy(Tensor<float>, Tensor<std::int32_t>, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> nn::linear(ReplicaContext&, Tensor<float>, std::string_view, const nn::LinearOptions&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> nn::conv2d(ReplicaContext&, Tensor<float>, std::string_view, const nn::Conv2dOptions&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> nn::batch_norm(ReplicaContext&, Tensor<float>, std::string_view, const nn::BatchNormOptions&, std::source_location);
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Sgd>::minimize(ReplicaContext&, Tensor<float>, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Sgd>::minimize(ReplicaContext&, Tensor<float>, const std::vector<Variable<float>>&, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Adam>::minimize(ReplicaContext&, Tensor<float>, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Adam>::minimize(ReplicaContext&, Tensor<float>, const std::vector<Variable<float>>&, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Rmsprop>::minimize(ReplicaContext&, Tensor<float>, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Rmsprop>::minimize(ReplicaContext&, Tensor<float>, const std::vector<Variable<float>>&, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Lars>::minimize(ReplicaContext&, Tensor<float>, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Lars>::minimize(ReplicaContext&, Tensor<float>, const std::vector<Variable<float>>&, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Lamb>::minimize(ReplicaContext&, Tensor<float>, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Minimizes<nn::Lamb>::minimize(ReplicaContext&, Tensor<float>, const std::vector<Variable<float>>&, std::source_location) const;
REPLICATOR_TEMPLATE Tensor<float> models::resnet(ReplicaContext&, Tensor<float>, int, const models::ResNetOptions&, std::source_location);

}  // namespace replicator
