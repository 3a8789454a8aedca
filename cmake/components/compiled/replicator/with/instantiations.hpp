// SPDX-License-Identifier: Apache-2.0
// The list of instantiations in replicator::compiled. The including file defines REPLICATOR_TEMPLATE: as `extern
// template` in user files, as `template` in the unit that holds the code.

#include <replicator/with/operations.hpp>

namespace replicator {

REPLICATOR_TEMPLATE std::string Shape::text<>() const;
REPLICATOR_TEMPLATE std::string Shape::too_large_text<>() const;
REPLICATOR_TEMPLATE void Shape::refuse<>(std::int64_t) const;
REPLICATOR_TEMPLATE std::optional<Shape> broadcast<>(const Shape&, const Shape&);
REPLICATOR_TEMPLATE std::string TensorType::text<>() const;
REPLICATOR_TEMPLATE std::string Location::text<>() const;
REPLICATOR_TEMPLATE std::string detail::number_text<>(double);
REPLICATOR_TEMPLATE void detail::refuse_element<>(const TensorType&, DType);
REPLICATOR_TEMPLATE void detail::refuse_count<>(const Shape&, std::size_t);
REPLICATOR_TEMPLATE AnyArray AnyArray::borrow<>(TensorType, void*, std::shared_ptr<const void>);
REPLICATOR_TEMPLATE void detail::refuse_element<>(const AnyTensor&, DType);
REPLICATOR_TEMPLATE void detail::refuse_replica<>(int, int, int, int);
REPLICATOR_TEMPLATE detail::GraphAnchor::Slot* detail::GraphAnchor::new_place<>();
REPLICATOR_TEMPLATE void nn::detail::refuse_option<>(const char*, const char*, double, const char*);
REPLICATOR_TEMPLATE std::unique_ptr<detail::Engine> detail::make_engine<>(Deployment&&);
REPLICATOR_TEMPLATE void detail::rethrow_with<>(const std::string&);
REPLICATOR_TEMPLATE void detail::add_results<>(Graph&, const std::vector<AnyTensor>&);
REPLICATOR_TEMPLATE void detail::rethrow_from_step<>(int, Location);
REPLICATOR_TEMPLATE void detail::warn_of_equal_inputs<>(const detail::Engine&, Location);
REPLICATOR_TEMPLATE detail::MakeInputs detail::make_inputs<>(detail::Engine&, int, std::vector<DType>, Location, std::function<detail::SourceOf()>);
REPLICATOR_TEMPLATE std::string detail::printable<>(std::string_view, std::size_t, detail::LineEnds);
REPLICATOR_TEMPLATE std::string Initializer::text<>() const;
REPLICATOR_TEMPLATE void Initializer::require_valid<>(const std::string&, const TensorType&) const;
REPLICATOR_TEMPLATE void detail::require_same<>(const VariableDeclaration&, const VariableDeclaration&);
REPLICATOR_TEMPLATE std::uint32_t Graph::add<>(detail::Node);
REPLICATOR_TEMPLATE void Graph::refuse_foreign<>(const std::string&, const AnyTensor&);
REPLICATOR_TEMPLATE std::uint32_t Graph::declare<>(VariableDeclaration);
REPLICATOR_TEMPLATE void Graph::assign<>(std::uint32_t, Value, Location);
REPLICATOR_TEMPLATE std::string Graph::name<>(std::uint32_t) const;
REPLICATOR_TEMPLATE void Graph::read_first<>(std::uint32_t, Location);
REPLICATOR_TEMPLATE void Graph::read_again<>(std::uint32_t, Location);
REPLICATOR_TEMPLATE std::uint32_t add_compute<>(Graph&, AnyOperation, std::span<const AnyTensor>, Location);
REPLICATOR_TEMPLATE std::uint16_t detail::Expression::append<>(detail::ScalarInstruction);
REPLICATOR_TEMPLATE std::vector<std::uint64_t> detail::Expression::code_words<>() const;
REPLICATOR_TEMPLATE Shape detail::broadcast_all<>(std::span<const TensorType>);
REPLICATOR_TEMPLATE AnyTensor detail::map_node<>(Graph&, detail::Expression, std::span<const AnyTensor>, Shape, DType, Location);
REPLICATOR_TEMPLATE AnyTensor detail::map_node<>(Graph&, detail::Expression, std::span<const AnyTensor>, DType, Location, std::string_view);
REPLICATOR_TEMPLATE AnyTensor detail::reduce_node<>(Graph&, ReduceKind, detail::Expression, std::span<const AnyTensor>, Shape, std::vector<std::int64_t>, DType, Location);
REPLICATOR_TEMPLATE AnyTensor detail::apply<>(detail::ScalarOp, std::initializer_list<AnyTensor>, Location, std::string_view);
REPLICATOR_TEMPLATE AnyTensor detail::apply<>(detail::ScalarOp, AnyTensor, Number, Location, std::string_view);
REPLICATOR_TEMPLATE AnyTensor converted<>(AnyTensor, DType, Location);
REPLICATOR_TEMPLATE AnyTensor constant_node<>(Graph&, AnyArray, Location);
REPLICATOR_TEMPLATE AnyTensor fill<>(Graph&, TensorType, Number, Location);
REPLICATOR_TEMPLATE AnyTensor detail::factored_sum<>(Graph&, const detail::Expression&, std::span<const AnyTensor>, const Shape&, const std::vector<std::int64_t>&, DType, Location);
REPLICATOR_TEMPLATE std::string Groups::fault<>(int) const;
REPLICATOR_TEMPLATE std::string Groups::text<>() const;
REPLICATOR_TEMPLATE Groups Groups::over<>(int) const;
REPLICATOR_TEMPLATE void Groups::list<>();
REPLICATOR_TEMPLATE std::vector<std::size_t> storage_order<>(const Layout&, const Shape&);
REPLICATOR_TEMPLATE std::vector<AnyTensor> Map::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> Reduce::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> Slice::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> Pad::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE AnyTensor Pad::sum<>(Graph&, std::span<const AnyTensor>, Location);
REPLICATOR_TEMPLATE std::vector<AnyTensor> Concat::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> detail::Attention::expand<>(const ExpansionContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> detail::Attention::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> detail::AttentionGradient::expand<>(const ExpansionContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> detail::AttentionGradient::gradient<>(const GradientContext&) const;
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
