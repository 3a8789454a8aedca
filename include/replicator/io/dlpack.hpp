// SPDX-License-Identifier: Apache-2.0
// Exchanges arrays with other frameworks of the same process without a copy, by DLPack.
// Source: dmlc.github.io/dlpack/latest ("DLPack C API"), versions 0.8 (unversioned) and 1.x (versioned).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::dlpack {

// --- the layout of the specification: a pointer to its DLManagedTensorVersioned may be cast to one to ManagedVersioned ----------

// The version that the specification gives a tensor.
struct Version {
  std::uint32_t major = 1;
  std::uint32_t minor = 0;
};
struct Device {
  std::int32_t type = 1;  // 1: CPU, 2: CUDA, 3: pinned host memory, 13: managed memory
  std::int32_t id = 0;
};
struct DataType {
  std::uint8_t code = 0;  // 0: int, 1: uint, 2: float, 4: bfloat16, 5: complex, 6: bool
  std::uint8_t bits = 0;
  std::uint16_t lanes = 1;
};
struct Tensor {
  void* data = nullptr;
  Device device;
  std::int32_t rank = 0;
  DataType dtype;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;  // in elements; null: row-major without gaps
  std::uint64_t byte_offset = 0;
};
// The structure before version 1: Python's capsule "dltensor".
struct Managed {
  Tensor tensor;
  void* context = nullptr;
  void (*deleter)(Managed*) = nullptr;
};
// The structure since version 1: Python's capsule "dltensor_versioned".
struct ManagedVersioned {
  Version version;
  void* context = nullptr;
  void (*deleter)(ManagedVersioned*) = nullptr;
  std::uint64_t flags = 0;
  Tensor tensor;
};
inline constexpr std::uint64_t read_only = 1;  // a flag of ManagedVersioned: the consumer must not write
inline constexpr std::uint64_t is_copied = 2;  // a flag of ManagedVersioned: the producer has copied the elements

static_assert(std::is_standard_layout_v<ManagedVersioned> && sizeof(void*) == 8);
static_assert(offsetof(Tensor, rank) == 16 && offsetof(Tensor, dtype) == 20 && offsetof(Tensor, shape) == 24 && sizeof(Tensor) == 48);
static_assert(offsetof(ManagedVersioned, flags) == 24 && offsetof(ManagedVersioned, tensor) == 32 && sizeof(Managed) == 64);

// Calls the tensor's deleter when the owner goes out of scope.
template <class M>
struct Delete {
  void operator()(M* managed) const {
    if (managed && managed->deleter) managed->deleter(managed);
  }
};
// Owns a tensor and deletes it as the specification asks.
template <class M>
using Owner = std::unique_ptr<M, Delete<M>>;

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
  if (array.empty()) throw BuildError{"to_dlpack: the array is empty: it has no shape"};
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

// Returns the array as a DLPack tensor that owns it. Nothing is copied if the array is moved in. To hand the tensor
// over, call release() on the result; its consumer calls the deleter.
// Throws BuildError for an array without a shape.
inline dlpack::Owner<dlpack::ManagedVersioned> to_dlpack(AnyArray array) {
  return dlpack::detail::exported<dlpack::ManagedVersioned>(std::move(array));
}
// The same for consumers that only know DLPack before version 1.
inline dlpack::Owner<dlpack::Managed> to_dlpack_unversioned(AnyArray array) { return dlpack::detail::exported<dlpack::Managed>(std::move(array)); }

// Takes over a DLPack tensor and returns it as an array. The deleter is always called: after the last use of the
// memory, or before an error is thrown. Memory that is row-major without gaps, aligned and writable is borrowed; other
// memory is copied.
// Throws BuildError for a major version other than 1, a device other than host memory, an unknown element type, more
// than 8 dimensions, and impossible extents. It cannot check that `data` holds all elements, and trusts it.
inline AnyArray from_dlpack(dlpack::ManagedVersioned* managed) {
  dlpack::Owner<dlpack::ManagedVersioned> owner{managed};
  if (!owner) throw BuildError{"from_dlpack: no tensor was given"};
  if (owner->version.major != 1)
    throw BuildError{"from_dlpack: the tensor follows version " + std::to_string(owner->version.major) + "." + std::to_string(owner->version.minor) +
                     " of DLPack; versions 1.x can be read"};
  const bool writable = (owner->flags & dlpack::read_only) == 0;
  return dlpack::detail::taken(std::move(owner), writable);
}
inline AnyArray from_dlpack(dlpack::Managed* managed) {
  dlpack::Owner<dlpack::Managed> owner{managed};
  if (!owner) throw BuildError{"from_dlpack: no tensor was given"};
  return dlpack::detail::taken(std::move(owner), true);
}

}  // namespace replicator
