// SPDX-License-Identifier: Apache-2.0
// The list of instantiations in replicator::compiled. The including file defines REPLICATOR_TEMPLATE: as `extern
// template` in user files, as `template` in the unit that holds the code.

#include <replicator/with/graphs.hpp>
#include <replicator/with/operations.hpp>

namespace replicator {

REPLICATOR_TEMPLATE void detail::refuse_replica<>(int, int, int, int);
REPLICATOR_TEMPLATE void nn::detail::refuse_option<>(const char*, const char*, double, const char*);
REPLICATOR_TEMPLATE std::unique_ptr<detail::Engine> detail::make_engine<>(Deployment&&);
REPLICATOR_TEMPLATE void detail::rethrow_with<>(const std::string&);
REPLICATOR_TEMPLATE void detail::add_results<>(Graph&, const std::vector<AnyTensor>&);
REPLICATOR_TEMPLATE void detail::rethrow_from_step<>(int, Location);
REPLICATOR_TEMPLATE void detail::warn_of_equal_inputs<>(const detail::Engine&, Location, detail::Lines&);
REPLICATOR_TEMPLATE detail::MakeInputs detail::make_inputs<>(detail::Engine&, int, std::vector<DType>, Location, bool, std::shared_ptr<detail::Lines>, std::function<detail::SourceOf()>);
REPLICATOR_TEMPLATE std::string detail::printable<>(std::string_view, std::size_t, detail::LineEnds);
REPLICATOR_TEMPLATE std::string Initializer::text<>() const;
REPLICATOR_TEMPLATE void Initializer::require_valid<>(const std::string&, const TensorType&) const;
REPLICATOR_TEMPLATE void detail::require_same<>(const VariableDeclaration&, const VariableDeclaration&);
REPLICATOR_TEMPLATE std::string Groups::fault<>(int) const;
REPLICATOR_TEMPLATE std::string Groups::text<>() const;
REPLICATOR_TEMPLATE Groups Groups::over<>(int) const;
REPLICATOR_TEMPLATE void Groups::list<>();
REPLICATOR_TEMPLATE AnyTensor detail::placeholder_node<>(AnyTensor, detail::Placeholder, Location, std::string);
REPLICATOR_TEMPLATE std::vector<bool> detail::dependent_nodes<>(AnyTensor, std::span<const AnyTensor>, Location);
REPLICATOR_TEMPLATE std::vector<AnyTensor> gradients<>(AnyTensor, std::span<const AnyTensor>, Location);
REPLICATOR_TEMPLATE std::vector<Tensor<float>> gradients(Tensor<float>, const std::vector<Tensor<float>>&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> all_reduce(Tensor<float>, Reduction, const CollectiveOptions&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> matmul(Tensor<float>, Tensor<float>, MatmulOptions, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> sum(Tensor<float>, const Axes&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> mean(Tensor<float>, const Axes&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> softmax_cross_entropy(Tensor<float>, Tensor<std::int32_t>, const CrossEntropyOptions&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> accuracy(Tensor<float>, Tensor<std::int32_t>, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> attention(Tensor<float>, Tensor<float>, Tensor<float>, const AttentionOptions&, std::source_location);
REPLICATOR_TEMPLATE std::vector<Tensor<float>> nn::variable_gradients(Tensor<float>, const std::vector<Variable<float>>&, std::source_location);
REPLICATOR_TEMPLATE std::vector<Tensor<float>> nn::mean_over_replicas(const std::vector<Variable<float>>&, const std::vector<Tensor<float>>&, nn::Wire, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> nn::layer_norm(ReplicaContext&, Tensor<float>, std::string_view, const nn::LayerNormOptions&, std::source_location);
REPLICATOR_TEMPLATE Tensor<float> nn::spectral_norm(ReplicaContext&, Tensor<float>, std::string_view, const nn::SpectralNormOptions&, std::source_location);
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
