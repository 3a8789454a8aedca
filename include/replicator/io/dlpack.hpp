// SPDX-License-Identifier: Apache-2.0
// Exchanges arrays with other frameworks of the same process without a copy, by DLPack.
// <replicator/replicator.hpp>, or dlpack_exchange.hpp, brings the code.
// Source: dmlc.github.io/dlpack/latest ("DLPack C API"), versions 0.8 (unversioned) and 1.x (versioned).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <replicator/core/array.hpp>
#include <type_traits>

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

}  // namespace replicator::dlpack

namespace replicator {

// Returns the array as a DLPack tensor that owns it. Nothing is copied if the array is moved in. To hand the tensor
// over, call release() on the result; its consumer calls the deleter.
// Throws BuildError for an array without a shape.
template <class = void>
dlpack::Owner<dlpack::ManagedVersioned> to_dlpack(AnyArray array);
// The same for consumers that only know DLPack before version 1.
template <class = void>
dlpack::Owner<dlpack::Managed> to_dlpack_unversioned(AnyArray array);

// Takes over a DLPack tensor and returns it as an array. The deleter is always called: after the last use of the
// memory, or before an error is thrown. Memory that is row-major without gaps, aligned and writable is borrowed; other
// memory is copied.
// Throws BuildError for a major version other than 1, a device other than host memory, an unknown element type, more
// than 8 dimensions, and impossible extents. It cannot check that `data` holds all elements, and trusts it.
template <class = void>
AnyArray from_dlpack(dlpack::ManagedVersioned* managed);
template <class = void>
AnyArray from_dlpack(dlpack::Managed* managed);

}  // namespace replicator
