// SPDX-License-Identifier: Apache-2.0
// oneDNN 2 through its C interface: owned handles, one engine, layouts translated. The only file that includes
// <dnnl.h>: <dnnl.hpp> does not compile under nvcc.
#pragma once

#include <dnnl.h>
#include <dnnl_debug.h>
#include <omp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/kernel_library.hpp>
#include <replicator/core/layout.hpp>
#include <replicator/graph/kernel.hpp>

namespace replicator::cpu::onednn {

constexpr std::string_view name_of(dnnl_status_t status) {
  constexpr std::string_view names[] = {"success",       "out of memory", "invalid arguments", "unimplemented",
                                        "iterator ends", "runtime error", "not required"};
  const auto index = static_cast<std::size_t>(status);
  return index < std::size(names) ? names[index] : "unknown status";
}

// Throws DeviceError unless the call succeeded.
inline void require(dnnl_status_t status, std::string_view call) {
  if (status != dnnl_success)
    throw DeviceError{"oneDNN refused " + std::string{call} + ": " + std::string{name_of(status)}};
}

// Owns what a `create` call left.
template <class T, dnnl_status_t (*destroy)(T)>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept : value_{std::exchange(other.value_, nullptr)} {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Handle() {
    if (value_) destroy(value_);
  }
  T get() const { return value_; }
  T* out() { return &value_; }  // where a `create` call writes; the handle must be empty
  explicit operator bool() const { return value_ != nullptr; }

 private:
  T value_ = nullptr;
};

using Engine = Handle<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Handle<dnnl_stream_t, dnnl_stream_destroy>;
using Memory = Handle<dnnl_memory_t, dnnl_memory_destroy>;
using Attributes = Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PrimitiveDescription = Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;

// One engine for the process: it holds no state of a computation.
inline dnnl_engine_t engine() {
  static const Engine shared = [] {
    Engine created;
    require(dnnl_engine_create(created.out(), dnnl_cpu, 0), "dnnl_engine_create");
    return created;
  }();
  return shared.get();
}

// A stream of the calling thread: streams are not promised to be thread-safe.
inline dnnl_stream_t stream() {
  thread_local const Stream own = [] {
    Stream created;
    require(dnnl_stream_create(created.out(), engine(), dnnl_stream_default_flags), "dnnl_stream_create");
    return created;
  }();
  return own.get();
}

// Of the shared library that runs, not of the one that was compiled against, and as the environment has set it:
// ONEDNN_MAX_CPU_ISA, ONEDNN_CPU_ISA_HINTS and ONEDNN_DEFAULT_FPMATH_MODE choose other kernels, with other bits.
inline std::string describe_library() {
  const dnnl_version_t& version = *dnnl_version();
  dnnl_fpmath_mode_t mode{};
  require(dnnl_get_default_fpmath_mode(&mode), "dnnl_get_default_fpmath_mode");
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch) + " (" +
         (version.hash ? version.hash : "no hash") + ") for " + dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa()) + ", " +
         dnnl_cpu_isa_hints2str(dnnl_get_cpu_isa_hints()) + ", floating-point mode " + dnnl_fpmath_mode2str(mode);
}

inline const bool library_registered = [] {
  kernel_library_slot[static_cast<std::size_t>(DeviceKind::cpu)].store(&describe_library);
  return true;
}();

// Sets the number of OpenMP threads while it lives. oneDNN fixes the split of the work, and with it the order of
// additions, when a primitive is *created*: so that happens under the number with which it will run.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int threads) : before_{omp_get_max_threads()} { omp_set_num_threads(threads); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;
  ~OpenMpThreads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

constexpr std::optional<dnnl_data_type_t> data_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return dnnl_f32;
    case DType::int32: return dnnl_s32;
    case DType::uint8: return dnnl_u8;
    case DType::bfloat16: return dnnl_bf16;
    default: return std::nullopt;
  }
}

// Row-major, extents of 1 aside: their strides say nothing.
inline bool is_row_major(std::span<const std::int64_t> extents, const dnnl_dim_t* strides) {
  std::int64_t expected = 1;
  for (std::size_t axis = extents.size(); axis-- > 0;) {
    if (extents[axis] != 1 && strides[axis] != expected) return false;
    expected *= extents[axis];
  }
  return true;
}

// Row-major memory of these extents, or with the strides given (in elements).
inline dnnl_memory_desc_t strided(std::span<const std::int64_t> extents, dnnl_data_type_t type,
                                  const std::int64_t* strides = nullptr) {
  dnnl_memory_desc_t result;
  std::array<dnnl_dim_t, Shape::max_rank> row_major{};
  dnnl_dim_t stride = 1;
  for (std::size_t axis = extents.size(); axis-- > 0; stride *= extents[axis]) row_major[axis] = stride;
  require(dnnl_memory_desc_init_by_strides(&result, static_cast<int>(extents.size()), extents.data(), type,
                                           strides ? strides : row_major.data()),
          "dnnl_memory_desc_init_by_strides");
  return result;
}

// Memory whose layout oneDNN may choose.
inline dnnl_memory_desc_t any_layout(std::span<const std::int64_t> extents, dnnl_data_type_t type) {
  dnnl_memory_desc_t result;
  require(dnnl_memory_desc_init_by_tag(&result, static_cast<int>(extents.size()), extents.data(), type,
                                       dnnl_format_tag_any),
          "dnnl_memory_desc_init_by_tag");
  return result;
}

inline std::span<const std::int64_t> extents_of(const Shape& shape) { return {shape.begin(), shape.rank()}; }

inline dnnl_memory_desc_t description(const Shape& shape, dnnl_data_type_t type, const Layout& layout) {
  if (layout.plain) return strided(extents_of(shape), type);
  dnnl_memory_desc_t result = any_layout(extents_of(shape), type);
  result.format_kind = dnnl_blocked;
  auto& blocking = result.format_desc.blocking;
  blocking = {};
  std::array<std::int64_t, Shape::max_rank> block{};
  block.fill(1);
  blocking.inner_nblks = layout.blocks;
  for (std::size_t i = 0; i < layout.blocks; ++i) {
    blocking.inner_blks[i] = layout.size[i];
    blocking.inner_idxs[i] = layout.axis[i];
    block[layout.axis[i]] *= layout.size[i];
  }
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
    blocking.strides[axis] = layout.strides[axis];
    result.padded_dims[axis] = (shape[axis] + block[axis] - 1) / block[axis] * block[axis];
  }
  return result;
}

// Empty where core/layout.hpp cannot say it (Winograd, compensation, offsets).
inline std::optional<Layout> layout_of(const dnnl_memory_desc_t& memory) {
  const auto& blocking = memory.format_desc.blocking;
  if (memory.format_kind != dnnl_blocked || memory.offset0 != 0 || memory.extra.flags != 0 ||
      blocking.inner_nblks > static_cast<int>(Layout::max_blocks))
    return std::nullopt;
  const std::span extents{memory.dims, static_cast<std::size_t>(memory.ndims)};
  if (blocking.inner_nblks == 0 && is_row_major(extents, blocking.strides)) return Layout{};
  Layout layout;
  layout.plain = false;
  layout.blocks = static_cast<std::uint8_t>(blocking.inner_nblks);
  for (std::size_t axis = 0; axis < extents.size(); ++axis) layout.strides[axis] = blocking.strides[axis];
  for (std::size_t i = 0; i < layout.blocks; ++i) {
    layout.axis[i] = static_cast<std::uint8_t>(blocking.inner_idxs[i]);
    layout.size[i] = static_cast<std::int32_t>(blocking.inner_blks[i]);
  }
  const std::size_t element = memory.data_type == dnnl_u8 ? 1 : memory.data_type == dnnl_bf16 ? 2 : 4;
  layout.storage = static_cast<std::int64_t>(dnnl_memory_desc_get_size(&memory) / element);
  return layout;
}

struct Argument {
  int id = 0;                                  // DNNL_ARG_...
  const dnnl_memory_desc_t* memory = nullptr;  // lives in the caller
  const std::byte* data = nullptr;             // oneDNN writes through it where the argument is an output
};

// A primitive with a scratchpad of the caller's. Immutable: any thread may run it.
class Primitive {
 public:
  Primitive() = default;
  explicit Primitive(PrimitiveDescription description) : description_{std::move(description)} {
    require(dnnl_primitive_create(primitive_.out(), description_.get()), "dnnl_primitive_create");
    scratchpad_ = memory(dnnl_query_scratchpad_md);
  }

  explicit operator bool() const { return static_cast<bool>(primitive_); }
  dnnl_memory_desc_t memory(dnnl_query_t what) const {
    const auto* found = dnnl_primitive_desc_query_md(description_.get(), what, 0);
    return found ? *found : dnnl_memory_desc_t{};
  }
  std::size_t scratch_bytes() const { return dnnl_memory_desc_get_size(&scratchpad_); }

  // Memory objects are made anew (130 ns each): changing the pointer of a shared one is not thread-safe.
  void run(std::span<const Argument> arguments, std::byte* scratch) const {
    static constexpr std::size_t most = 4;
    std::array<Memory, most> memories;
    std::array<dnnl_exec_arg_t, most> list{};
    std::size_t n = 0;
    const auto add = [&](int id, const dnnl_memory_desc_t& description, const std::byte* data) {
      require(dnnl_memory_create(memories[n].out(), &description, engine(), const_cast<std::byte*>(data)),
              "dnnl_memory_create");
      list[n] = {id, memories[n].get()};
      ++n;
    };
    for (const auto& argument : arguments) add(argument.id, *argument.memory, argument.data);
    if (scratch_bytes() != 0) add(DNNL_ARG_SCRATCHPAD, scratchpad_, scratch);
    require(dnnl_primitive_execute(primitive_.get(), stream(), static_cast<int>(n), list.data()),
            "dnnl_primitive_execute");
  }

 private:
  PrimitiveDescription description_;
  Handle<dnnl_primitive_t, dnnl_primitive_destroy> primitive_;
  dnnl_memory_desc_t scratchpad_{};
};

inline const_dnnl_primitive_attr_t user_scratchpad() {
  static const Attributes shared = [] {
    Attributes created;
    require(dnnl_primitive_attr_create(created.out()), "dnnl_primitive_attr_create");
    require(dnnl_primitive_attr_set_scratchpad_mode(created.get(), dnnl_scratchpad_mode_user),
            "dnnl_scratchpad_mode_user");
    return created;
  }();
  return shared.get();
}

// Empty where oneDNN has no implementation.
inline PrimitiveDescription describe(const void* operation, const_dnnl_primitive_desc_t forward = nullptr) {
  PrimitiveDescription result;
  const auto status = dnnl_primitive_desc_create(result.out(), operation, user_scratchpad(), engine(), forward);
  if (status == dnnl_unimplemented) return {};
  require(status, "dnnl_primitive_desc_create");
  return result;
}

// Empty where oneDNN has no implementation.
inline PrimitiveDescription describe_reorder(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to) {
  PrimitiveDescription result;
  const auto status = dnnl_reorder_primitive_desc_create(result.out(), &from, engine(), &to, engine(), user_scratchpad());
  if (status == dnnl_unimplemented) return {};
  require(status, "dnnl_reorder_primitive_desc_create");
  return result;
}

inline std::size_t aligned(std::size_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

}  // namespace replicator::cpu::onednn
