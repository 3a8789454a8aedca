// SPDX-License-Identifier: Apache-2.0
// The list of instantiations in replicator::compiled. The including file defines REPLICATOR_TEMPLATE: as `extern
// template` in user files, as `template` in the unit that holds the code.

#include <replicator/with/graphs.hpp>
#include <replicator/with/operations.hpp>

namespace replicator {

REPLICATOR_TEMPLATE void detail::refuse_replica<>(int, int, int, int);
REPLICATOR_TEMPLATE void nn::detail::refuse_option<>(const char*, const char*, double, const char*);
REPLICATOR_TEMPLATE std::string nn::detail::layer_text<>(const ReplicaContext&, std::string_view, std::string_view, std::source_location);
REPLICATOR_TEMPLATE std::int64_t detail::parse_number<>(std::string_view, std::string_view, std::int64_t, std::int64_t);
REPLICATOR_TEMPLATE std::int64_t detail::parse_bytes<>(std::string_view, std::string_view);
REPLICATOR_TEMPLATE std::shared_ptr<detail::Engine> detail::make_engine<>(Deployment&&);
REPLICATOR_TEMPLATE void detail::rethrow_with<>(const std::string&);
REPLICATOR_TEMPLATE std::string detail::ElementPlace::text<>() const;
REPLICATOR_TEMPLATE void detail::refuse_batch<>(std::int64_t, int);
REPLICATOR_TEMPLATE void data::detail::require_memory<>(const AnyArray&);
REPLICATOR_TEMPLATE void detail::refuse_moved_step<>();
REPLICATOR_TEMPLATE void detail::refuse_moved_replicator<>();
REPLICATOR_TEMPLATE std::int64_t detail::ResumedSteps::still_to_do<>(std::int64_t, Location);
REPLICATOR_TEMPLATE void detail::ResumedSteps::end_loop<>();
REPLICATOR_TEMPLATE detail::StepResults detail::ResumedSteps::run<>(Location);
REPLICATOR_TEMPLATE void detail::add_results<>(Graph&, const std::vector<AnyTensor>&);
REPLICATOR_TEMPLATE void detail::rethrow_from_step<>(int, Location);
REPLICATOR_TEMPLATE void detail::warn_of_equal_inputs<>(detail::Engine&, Location);
REPLICATOR_TEMPLATE detail::MakeInputs detail::make_inputs<>(detail::Engine&, int, std::vector<DType>, Location, bool, std::function<detail::SourceOf()>);
REPLICATOR_TEMPLATE std::string detail::printable<>(std::string_view, std::size_t, detail::LineEnds);
REPLICATOR_TEMPLATE std::string Initializer::text<>() const;
REPLICATOR_TEMPLATE void Initializer::require_valid<>(const std::string&, const TensorType&) const;
REPLICATOR_TEMPLATE void detail::require_same<>(const VariableDeclaration&, const VariableDeclaration&);
REPLICATOR_TEMPLATE void detail::require_one_element<>(const VariableDeclaration&);
REPLICATOR_TEMPLATE AnyArray detail::array_of<>(Number, const VariableDeclaration&);
REPLICATOR_TEMPLATE Number detail::number_in<>(const AnyArray&);
REPLICATOR_TEMPLATE std::vector<AnyArray> detail::to_vector<>(AnyArray*, std::size_t);
REPLICATOR_TEMPLATE std::uint32_t detail::declare_variable<>(Graph&, std::string_view, TensorType, Initializer, const VariableOptions&, Location);
REPLICATOR_TEMPLATE std::vector<Variable<float>> ReplicaContext::trainable_variables(std::string_view);
REPLICATOR_TEMPLATE int Deployment::devices_per_replica<>() const;
REPLICATOR_TEMPLATE std::string Groups::fault<>(int) const;
REPLICATOR_TEMPLATE std::string Groups::text<>() const;
REPLICATOR_TEMPLATE Groups Groups::over<>(int) const;
REPLICATOR_TEMPLATE void Groups::list<>();
REPLICATOR_TEMPLATE void detail::require_groups<>(const detail::Placeholder&, int, const std::string&);
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
REPLICATOR_TEMPLATE std::vector<std::int64_t> detail::resolve_axes<>(const Axes&, const Shape&, std::string_view, Location);
REPLICATOR_TEMPLATE AnyTensor detail::reduce<>(ReduceKind, AnyTensor, const Axes&, std::string_view, Location);
REPLICATOR_TEMPLATE AnyTensor detail::random_node<>(Graph&, Distribution, TensorType, const RandomOptions&, Location);
REPLICATOR_TEMPLATE void detail::refuse_random<>(const Graph&, Location, const std::string&);
REPLICATOR_TEMPLATE AnyTensor nn::detail::in_parts<>(AnyTensor, Location);
REPLICATOR_TEMPLATE AnyTensor nn::detail::own_part<>(AnyTensor, Location);
REPLICATOR_TEMPLATE AnyTensor nn::detail::joined<>(AnyTensor, const Shape&, std::string, Location);
REPLICATOR_TEMPLATE AnyTensor nn::detail::read_average<>(Graph&, std::uint32_t, AnyTensor, Location);
REPLICATOR_TEMPLATE AnyTensor nn::detail::advance<>(Graph&, const nn::Trained&, std::span<const AnyTensor>, const std::vector<std::string_view>&, const nn::detail::UpdateFormula&, DType, Location);
REPLICATOR_TEMPLATE void nn::detail::update<>(Graph&, const nn::Trained&, std::span<const AnyTensor>, const std::vector<std::string_view>&, const nn::detail::UpdateFormula&, Location);
REPLICATOR_TEMPLATE void nn::Adam::update_elements<>(ReplicaContext&, const std::vector<nn::Trained>&, DType, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Sgd::update_elements<>(ReplicaContext&, const std::vector<nn::Trained>&, DType, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Rmsprop::update_elements<>(ReplicaContext&, const std::vector<nn::Trained>&, DType, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Lars::update_variables<>(ReplicaContext&, const std::vector<nn::Trained>&, DType, std::source_location) const;
REPLICATOR_TEMPLATE void nn::Lamb::update_variables<>(ReplicaContext&, const std::vector<nn::Trained>&, DType, std::source_location) const;
REPLICATOR_TEMPLATE detail::ExpressionPtr detail::adam_expression<>(DType, const detail::AdamConstants<double>&, double, bool);
REPLICATOR_TEMPLATE AnyTensor nn::detail::count_update<>(Graph&, std::uint32_t, std::string_view, Location);
REPLICATOR_TEMPLATE std::uint32_t nn::detail::declare_average<>(Graph&, std::uint32_t, Location);
REPLICATOR_TEMPLATE void nn::detail::require_gradient<>(const Graph&, std::uint32_t, AnyTensor, Location);
REPLICATOR_TEMPLATE std::vector<AnyTensor> nn::detail::scalars_of<>(Graph&, const replicator::detail::ExpressionPtr&, std::span<const AnyTensor>, DType, Location);
REPLICATOR_TEMPLATE void nn::detail::warn_of_left_out<>(Graph&, AnyTensor, Location);
REPLICATOR_TEMPLATE AnyTensor nn::detail::sum_of_squares<>(AnyTensor, Location);
REPLICATOR_TEMPLATE AnyTensor nn::global_norm<>(const std::vector<AnyTensor>&, Location);
REPLICATOR_TEMPLATE std::uint32_t nn::detail::declare_slot<>(Graph&, std::uint32_t, std::string_view, TensorType, Location, bool);
REPLICATOR_TEMPLATE void nn::detail::update_average<>(Graph&, std::uint32_t, double, Location);
REPLICATOR_TEMPLATE void nn::detail::require_parts<>(const ReplicaContext&, int, const TensorType&, Location);
REPLICATOR_TEMPLATE std::vector<AnyTensor> nn::detail::low_rank_means<>(const std::vector<nn::Trained>&, const nn::LowRank&, Location);
REPLICATOR_TEMPLATE nn::Rate nn::linear_warmup<>(const nn::Rate&, std::int64_t, std::source_location);
REPLICATOR_TEMPLATE nn::Rate nn::step_decay<>(double, double, std::int64_t, std::source_location);
REPLICATOR_TEMPLATE nn::Rate nn::warmup_cosine<>(double, std::int64_t, std::int64_t, double, std::source_location);
REPLICATOR_TEMPLATE AnyTensor detail::observe<>(AnyTensor, std::string, Observer, Location);
REPLICATOR_TEMPLATE std::string detail::named<>(std::string_view, const std::string&, Location);
REPLICATOR_TEMPLATE Tensor<bool> check<>(Tensor<bool>, std::string, std::source_location);
REPLICATOR_TEMPLATE void nn::average_over_replicas<>(ReplicaContext&, std::string_view, std::source_location);
REPLICATOR_TEMPLATE void nn::update_targets<>(ReplicaContext&, std::string_view, std::int64_t, std::source_location);
REPLICATOR_TEMPLATE std::vector<std::size_t> nn::detail::order_of_making<>(const std::vector<nn::Trained>&);
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
