// SPDX-License-Identifier: Apache-2.0
// oneDNN's primitives, which work in the caller's scratch memory.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include <replicator/core/array.hpp>
#include <replicator/cpu/onednn/onednn_memory.hpp>

namespace replicator::detail::cpu::onednn {

// The description of one tensor of a primitive, or of its scratchpad. Empty where it has none.
inline MemoryDescription memory_of(const PrimitiveDescription& primitive, dnnl_query_t what) {
  return MemoryDescription::copy_of(dnnl_primitive_desc_query_md(primitive.get(), what, 0));
}

struct Argument {
  int id = 0;                                 // DNNL_ARG_...
  const MemoryDescription* memory = nullptr;  // lives in the caller
  const std::byte* data = nullptr;            // oneDNN writes here if the argument is an output
};

// A primitive whose scratchpad the caller gives. Immutable: any thread may run it.
class Primitive {
 public:
  Primitive() = default;
  explicit Primitive(PrimitiveDescription description) : description_{std::move(description)} {
    require(dnnl_primitive_create(primitive_.out(), description_.get()), "dnnl_primitive_create");
    scratchpad_ = memory(dnnl_query_scratchpad_md);
  }

  explicit operator bool() const { return static_cast<bool>(primitive_); }
  MemoryDescription memory(dnnl_query_t what) const { return memory_of(description_, what); }
  std::size_t scratch_bytes() const { return scratchpad_.bytes(); }

  // Makes new memory objects (130 ns each), because changing the pointer of a shared one is not thread-safe.
  void run(std::span<const Argument> arguments, std::byte* scratch) const {
    static constexpr std::size_t most = 4;
    std::array<Memory, most> memories;
    std::array<dnnl_exec_arg_t, most> list{};
    std::size_t n = 0;
    const auto add = [&](int id, const MemoryDescription& description, const std::byte* data) {
      require(dnnl_memory_create(memories[n].out(), description.get(), engine(), const_cast<std::byte*>(data)), "dnnl_memory_create");
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
  MemoryDescription scratchpad_;
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

// Calls create(result, given..., attributes), the form of oneDNN's calls that describe a primitive. Empty where oneDNN has no
// implementation. Throws DeviceError for any other failure.
template <class... Parameters, class... Given>
PrimitiveDescription describe(dnnl_status_t (*create)(dnnl_primitive_desc_t*, Parameters...), std::string_view call, const Given&... given) {
  PrimitiveDescription result;
  const auto status = create(result.out(), given..., user_scratchpad());
  if (status == dnnl_unimplemented) return {};
  require(status, call);
  return result;
}

inline PrimitiveDescription describe_reorder(const MemoryDescription& from, const MemoryDescription& to) {
  return describe(&dnnl_reorder_primitive_desc_create, "dnnl_reorder_primitive_desc_create", from.get(), engine(), to.get(), engine());
}

inline std::size_t aligned(std::size_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

}  // namespace replicator::detail::cpu::onednn
