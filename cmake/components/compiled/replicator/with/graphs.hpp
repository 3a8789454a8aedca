// SPDX-License-Identifier: Apache-2.0
// The graphs among these instantiations, with the operations of graph/. Units of replicator::compiled that need no
// other operation include this part of instantiations.hpp alone.

namespace replicator {

REPLICATOR_TEMPLATE struct AnyOperation::Model<Map>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<Reduce>;
REPLICATOR_TEMPLATE struct AnyOperation::Model<detail::LayoutCopy>;
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Map);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(Reduce);
REPLICATOR_TEMPLATE AnyOperation::AnyOperation(detail::LayoutCopy);

REPLICATOR_TEMPLATE std::string Shape::text<>() const;
REPLICATOR_TEMPLATE std::string Shape::too_large_text<>() const;
REPLICATOR_TEMPLATE void Shape::refuse<>(std::int64_t) const;
REPLICATOR_TEMPLATE void Shape::refuse_extent<>(std::int64_t) const;
REPLICATOR_TEMPLATE void Shape::refuse_size<>() const;
REPLICATOR_TEMPLATE std::optional<Shape> broadcast<>(const Shape&, const Shape&);
REPLICATOR_TEMPLATE std::string TensorType::text<>() const;
REPLICATOR_TEMPLATE std::string Location::text<>() const;
REPLICATOR_TEMPLATE std::string detail::call_text<>(int, std::string_view, Location);
REPLICATOR_TEMPLATE std::string detail::number_text<>(double);
REPLICATOR_TEMPLATE std::string detail::unfit_number<>(Number, DType);
REPLICATOR_TEMPLATE std::shared_ptr<std::byte> detail::zero_bytes<>(std::size_t);
REPLICATOR_TEMPLATE std::shared_ptr<std::byte> detail::copied_bytes<>(std::span<const std::byte>);
REPLICATOR_TEMPLATE void detail::refuse_element<>(const TensorType&, DType);
REPLICATOR_TEMPLATE void detail::refuse_count<>(const Shape&, std::size_t);
REPLICATOR_TEMPLATE void detail::refuse_item<>(const Shape&);
REPLICATOR_TEMPLATE void detail::refuse_without_memory<>(const std::string&);
REPLICATOR_TEMPLATE void detail::refuse_stale_handle<>();
REPLICATOR_TEMPLATE void detail::throw_at_line<>(std::string_view, Location, const BuildError&);
REPLICATOR_TEMPLATE AnyArray AnyArray::borrow<>(TensorType, void*, std::shared_ptr<const void>);
REPLICATOR_TEMPLATE void detail::refuse_element<>(const AnyTensor&, DType);
REPLICATOR_TEMPLATE detail::GraphAnchor::Slot* detail::GraphAnchor::new_place<>();
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
REPLICATOR_TEMPLATE std::vector<std::size_t> storage_order<>(const Layout&, const Shape&);
REPLICATOR_TEMPLATE std::vector<AnyTensor> Map::gradient<>(const GradientContext&) const;
REPLICATOR_TEMPLATE std::vector<AnyTensor> Reduce::gradient<>(const GradientContext&) const;

}  // namespace replicator
