// SPDX-License-Identifier: Apache-2.0
// The code of dlpack.hpp: exports arrays as DLPack tensors, and takes tensors over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/io/dlpack.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::dlpack {

namespace detail {

constexpr DataType data_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::float32:
    case DType::float64: return {2, bits, 1};
    case DType::int32:
    case DType::int64: return {0, bits, 1};
    case DType::uint8: return {1, bits, 1};
    case DType::boolean: return {6, bits, 1};
    case DType::bfloat16: break;
  }
  return {4, bits, 1};
}

inline std::string text(const DataType& type) {
  static constexpr const char* codes[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  return (type.code < 7 ? codes[type.code] : "type code " + std::to_string(type.code) + ", ") + std::to_string(type.bits) +
         (type.lanes == 1 ? "" : " x " + std::to_string(type.lanes));
}

inline DType element_type(const DataType& type) {
  for (const DType each : {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8, DType::boolean, DType::bfloat16}) {
    const DataType known = data_type(each);
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return each;
  }
  throw BuildError{"from_dlpack: the tensor is " + text(type) +
                   "; float32, float64, bfloat16, int32, int64, uint8 and bool can be taken: convert it first"};
}

inline bool row_major(const Tensor& tensor, const Shape& shape) {
  if (!tensor.strides) return true;
  const auto expected = shape.strides();
  for (std::size_t axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1 && tensor.strides[axis] != expected[axis]) return false;
  return true;
}

// Copies along the strides, row by row.
inline AnyArray gathered(const Tensor& tensor, const TensorType& type, const std::byte* data) {
  AnyArray result{type};
  const std::size_t size = size_of(type.dtype);
  std::byte* to = result.data();
  const auto copy = [&](const auto& self, std::size_t axis, const std::byte* from) -> void {
    if (axis == type.shape.rank()) {
      std::memcpy(to, from, size);
      to += size;
      return;
    }
    for (std::int64_t i = 0; i < type.shape[axis]; ++i) self(self, axis + 1, from + i * tensor.strides[axis] * static_cast<std::int64_t>(size));
  };
  copy(copy, 0, data);
  return result;
}

inline TensorType checked_type(const Tensor& tensor) {
  if (tensor.device.type != 1 && tensor.device.type != 3 && tensor.device.type != 13)
    throw BuildError{"from_dlpack: the tensor lies on a device of type " + std::to_string(tensor.device.type) +
                     "; arrays lie in host memory: copy it there first (in PyTorch: x.cpu())"};
  if (tensor.rank < 0 || tensor.rank > static_cast<std::int32_t>(Shape::max_rank))
    throw BuildError{"from_dlpack: the tensor has " + std::to_string(tensor.rank) + " dimensions; at most 8 are possible"};
  if (tensor.rank > 0 && !tensor.shape) throw BuildError{"from_dlpack: the tensor has " + std::to_string(tensor.rank) + " dimensions, but no shape"};
  TensorType type{element_type(tensor.dtype), {}};
  for (std::int32_t axis = 0; axis < tensor.rank; ++axis) {
    if (tensor.shape[axis] < 0)
      throw BuildError{"from_dlpack: the tensor has the extent " + std::to_string(tensor.shape[axis]) + " in dimension " + std::to_string(axis)};
    type.shape.push_back(tensor.shape[axis]);
  }
  if (type.shape.too_large()) throw BuildError{"from_dlpack: " + type.shape.too_large_text()};
  return type;
}

// Borrows the memory if its order, its alignment and the right to write allow it; otherwise copies.
template <class M>
AnyArray taken(Owner<M> owner, bool writable) {
  const Tensor& tensor = owner->tensor;
  const TensorType type = checked_type(tensor);
  if (type.shape.elements() == 0) return AnyArray{type};
  if (!tensor.data) throw BuildError{"from_dlpack: the tensor " + type.text() + " has no memory"};
  std::byte* const data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  const bool dense = row_major(tensor, type.shape);
  if (writable && dense && reinterpret_cast<std::uintptr_t>(data) % size_of(type.dtype) == 0)
    return AnyArray::borrow(type, data, std::shared_ptr<M>{std::move(owner)});
  if (!dense) return gathered(tensor, type, data);
  AnyArray copy{type};
  std::memcpy(copy.data(), data, copy.size_bytes());
  return copy;
}

// The memory behind an exported tensor. It lives until the consumer calls the deleter.
template <class M>
struct Exported {
  M managed;
  AnyArray array;
  std::vector<std::int64_t> shape, strides;
};

template <class M>
Owner<M> exported(AnyArray array) {
  if (array.empty()) replicator::detail::refuse_without_memory("to_dlpack");
  auto made = std::make_unique<Exported<M>>();
  made->shape.assign(array.shape().begin(), array.shape().end());
  const auto strides = array.shape().strides();
  made->strides.assign(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(array.shape().rank()));
  made->array = std::move(array);
  made->managed.tensor = {made->array.data(), {}, static_cast<std::int32_t>(made->shape.size()), data_type(made->array.dtype()), made->shape.data(), made->strides.data(), 0};
  made->managed.context = made.get();
  made->managed.deleter = [](M* managed) { delete static_cast<Exported<M>*>(managed->context); };
  return Owner<M>{&made.release()->managed};
}

}  // namespace detail

}  // namespace replicator::dlpack

namespace replicator {

template <class>
dlpack::Owner<dlpack::ManagedVersioned> to_dlpack(AnyArray array) {
  return dlpack::detail::exported<dlpack::ManagedVersioned>(std::move(array));
}
template <class>
dlpack::Owner<dlpack::Managed> to_dlpack_unversioned(AnyArray array) { return dlpack::detail::exported<dlpack::Managed>(std::move(array)); }

template <class>
AnyArray from_dlpack(dlpack::ManagedVersioned* managed) {
  dlpack::Owner<dlpack::ManagedVersioned> owner{managed};
  if (!owner) throw BuildError{"from_dlpack: no tensor was given"};
  if (owner->version.major != 1)
    throw BuildError{"from_dlpack: the tensor follows version " + std::to_string(owner->version.major) + "." + std::to_string(owner->version.minor) +
                     " of DLPack; versions 1.x can be read"};
  const bool writable = (owner->flags & dlpack::read_only) == 0;
  return dlpack::detail::taken(std::move(owner), writable);
}
template <class>
AnyArray from_dlpack(dlpack::Managed* managed) {
  dlpack::Owner<dlpack::Managed> owner{managed};
  if (!owner) throw BuildError{"from_dlpack: no tensor was given"};
  return dlpack::detail::taken(std::move(owner), true);
}

}  // namespace replicator
