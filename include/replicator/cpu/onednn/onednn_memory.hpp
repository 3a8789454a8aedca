// SPDX-License-Identifier: Apache-2.0
// oneDNN's descriptions of memory, and their conversion to and from the layouts of core/layout.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

#include <replicator/core/layout.hpp>
#include <replicator/cpu/onednn/onednn.hpp>

namespace replicator::detail::cpu::onednn {

// Owns a memory description, which nothing changes. Copies share it. Empty until it is given one.
class MemoryDescription {
 public:
  MemoryDescription() = default;
  // Takes ownership of what a `create` call made.
  explicit MemoryDescription(MemoryPointer created) : shared_{created, &dnnl_memory_desc_destroy} {}
  // A copy of a description that something else owns. Null gives an empty one.
  static MemoryDescription copy_of(ConstMemoryPointer other) {
    if (!other) return {};
    MemoryPointer copy{};
    require(dnnl_memory_desc_clone(&copy, other), "dnnl_memory_desc_clone");
    return MemoryDescription{copy};
  }

  ConstMemoryPointer get() const { return shared_.get(); }
  std::size_t bytes() const { return shared_ ? dnnl_memory_desc_get_size(get()) : 0; }

  dnnl_format_kind_t format_kind() const { return ask<dnnl_format_kind_t>(dnnl_query_format_kind); }
  dnnl_data_type_t type() const { return ask<dnnl_data_type_t>(dnnl_query_data_type); }
  std::span<const dnnl_dim_t> extents() const { return list(dnnl_query_dims, dnnl_query_ndims_s32); }
  dnnl_dim_t offset() const { return ask<dnnl_dim_t>(dnnl_query_submemory_offset_s64); }
  // For the format kind `blocked`: strides of the outer axes, then sizes and axes of the blocks, outermost first.
  std::span<const dnnl_dim_t> strides() const { return list(dnnl_query_strides, dnnl_query_ndims_s32); }
  std::span<const dnnl_dim_t> block_sizes() const { return list(dnnl_query_inner_blks, dnnl_query_inner_nblks_s32); }
  std::span<const dnnl_dim_t> block_axes() const { return list(dnnl_query_inner_idxs, dnnl_query_inner_nblks_s32); }

  friend bool operator==(const MemoryDescription& a, const MemoryDescription& b) { return dnnl_memory_desc_equal(a.get(), b.get()) != 0; }

 private:
  template <class T, class Query>
  T ask(Query what) const {
    T answer{};
    require(dnnl_memory_desc_query(get(), what, &answer), "dnnl_memory_desc_query");
    return answer;
  }
  template <class Query>
  std::span<const dnnl_dim_t> list(Query what, Query count) const {
    return {ask<const dnnl_dim_t*>(what), static_cast<std::size_t>(ask<int>(count))};
  }

  std::shared_ptr<std::remove_pointer_t<MemoryPointer>> shared_;
};

// Describes row-major memory of these extents, or memory with the given strides (in elements).
inline MemoryDescription strided(std::span<const std::int64_t> extents, dnnl_data_type_t type, const std::int64_t* strides = nullptr) {
  std::array<dnnl_dim_t, Shape::max_rank> row_major{};
  dnnl_dim_t stride = 1;
  for (std::size_t axis = extents.size(); axis-- > 0; stride *= extents[axis]) row_major[axis] = stride;
  MemoryPointer made{};
  require(dnnl_memory_desc_create_with_strides(&made, static_cast<int>(extents.size()), extents.data(), type,
                                               strides ? strides : row_major.data()),
          "dnnl_memory_desc_create_with_strides");
  return MemoryDescription{made};
}

// Describes memory in a layout that oneDNN has a name for. Empty where the name is of another rank.
inline MemoryDescription tagged(std::span<const std::int64_t> extents, dnnl_data_type_t type, dnnl_format_tag_t tag) {
  MemoryPointer made{};
  const auto status = dnnl_memory_desc_create_with_tag(&made, static_cast<int>(extents.size()), extents.data(), type, tag);
  return status == dnnl_success ? MemoryDescription{made} : MemoryDescription{};
}

// Describes memory in a layout that oneDNN may choose.
inline MemoryDescription any_layout(std::span<const std::int64_t> extents, dnnl_data_type_t type) {
  return tagged(extents, type, dnnl_format_tag_any);
}

inline std::span<const std::int64_t> extents_of(const Shape& shape) { return {shape.begin(), shape.rank()}; }

// The Layout of a description. Empty where core/layout.hpp cannot describe it: Winograd's formats, offsets, too many blocks.
inline std::optional<Layout> layout_of(const MemoryDescription& memory) {
  if (memory.format_kind() != dnnl_blocked || memory.offset() != 0) return std::nullopt;
  const auto extents = memory.extents(), strides = memory.strides(), sizes = memory.block_sizes(), axes = memory.block_axes();
  if (sizes.size() > Layout::max_blocks) return std::nullopt;
  Layout layout;
  layout.plain = false;
  layout.blocks = static_cast<std::uint8_t>(sizes.size());
  std::copy(strides.begin(), strides.end(), layout.strides.begin());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    layout.axis[i] = static_cast<std::uint8_t>(axes[i]);
    layout.size[i] = static_cast<std::int32_t>(sizes[i]);
  }
  const std::size_t element = memory.type() == dnnl_u8     ? 1
                              : memory.type() == dnnl_bf16 ? 2
                                                           : 4;
  layout.storage = static_cast<std::int64_t>(memory.bytes() / element);
  return sizes.empty() ? simplest(layout, Shape{extents}) : layout;
}

// Describes memory in a layout. Empty where oneDNN has no name for its blocks.
inline MemoryDescription described(const Shape& shape, dnnl_data_type_t type, const Layout& layout) {
  const auto extents = extents_of(shape);
  if (layout.plain) return strided(extents, type);
  if (layout.blocks == 0) return strided(extents, type, layout.strides.data());
  for (int tag = dnnl_format_tag_any + 1; tag < dnnl_format_tag_last; ++tag) {
    auto memory = tagged(extents, type, static_cast<dnnl_format_tag_t>(tag));
    if (memory.get() && layout_of(memory) == layout) return memory;
  }
  return {};
}

}  // namespace replicator::detail::cpu::onednn
