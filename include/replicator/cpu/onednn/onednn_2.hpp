// SPDX-License-Identifier: Apache-2.0
// The names of oneDNN 3 that replicator uses, implemented on oneDNN 2. There a memory description is a plain struct, and a
// primitive is described in two calls.
#pragma once

#include <dnnl.h>

namespace replicator::detail::cpu::onednn {

using MemoryPointer = dnnl_memory_desc_t*;
using ConstMemoryPointer = const dnnl_memory_desc_t*;

inline dnnl_status_t dnnl_memory_desc_clone(MemoryPointer* memory, ConstMemoryPointer existing) {
  *memory = new dnnl_memory_desc_t{*existing};
  return dnnl_success;
}
inline dnnl_status_t dnnl_memory_desc_create_with_strides(MemoryPointer* memory, int rank, const dnnl_dims_t extents, dnnl_data_type_t type,
                                                          const dnnl_dims_t strides) {
  dnnl_memory_desc_t made{};
  const auto status = dnnl_memory_desc_init_by_strides(&made, rank, extents, type, strides);
  return status == dnnl_success ? dnnl_memory_desc_clone(memory, &made) : status;
}
inline dnnl_status_t dnnl_memory_desc_create_with_tag(MemoryPointer* memory, int rank, const dnnl_dims_t extents, dnnl_data_type_t type,
                                                      dnnl_format_tag_t tag) {
  dnnl_memory_desc_t made{};
  const auto status = dnnl_memory_desc_init_by_tag(&made, rank, extents, type, tag);
  return status == dnnl_success ? dnnl_memory_desc_clone(memory, &made) : status;
}
inline dnnl_status_t dnnl_memory_desc_destroy(MemoryPointer memory) {
  delete memory;
  return dnnl_success;
}

enum MemoryQuery {
  dnnl_query_ndims_s32,
  dnnl_query_dims,
  dnnl_query_data_type,
  dnnl_query_submemory_offset_s64,
  dnnl_query_format_kind,
  dnnl_query_strides,
  dnnl_query_inner_nblks_s32,
  dnnl_query_inner_blks,
  dnnl_query_inner_idxs
};
// `result` points to the type that oneDNN 3 gives, for example int, dnnl_dim_t or const dnnl_dim_t*.
inline dnnl_status_t dnnl_memory_desc_query(ConstMemoryPointer memory, MemoryQuery what, void* result) {
  const auto& blocking = memory->format_desc.blocking;
  const auto give = [&](auto value) {
    *static_cast<decltype(value)*>(result) = value;
    return dnnl_success;
  };
  switch (what) {
    case dnnl_query_ndims_s32: return give(memory->ndims);
    case dnnl_query_dims: return give(&memory->dims[0]);
    case dnnl_query_data_type: return give(memory->data_type);
    case dnnl_query_submemory_offset_s64: return give(memory->offset0);
    case dnnl_query_format_kind: return give(memory->format_kind);
    case dnnl_query_strides: return give(&blocking.strides[0]);
    case dnnl_query_inner_nblks_s32: return give(blocking.inner_nblks);
    case dnnl_query_inner_blks: return give(&blocking.inner_blks[0]);
    case dnnl_query_inner_idxs: return give(&blocking.inner_idxs[0]);
  }
  return dnnl_invalid_arguments;
}

// Describes a primitive by `operation`. An `init` call has written it, with the status `written`.
inline dnnl_status_t describe_operation(dnnl_status_t written, const void* operation, dnnl_primitive_desc_t* made, dnnl_engine_t engine,
                                        const_dnnl_primitive_attr_t attributes, const_dnnl_primitive_desc_t forward = nullptr) {
  return written == dnnl_success ? dnnl_primitive_desc_create(made, operation, attributes, engine, forward) : written;
}

inline dnnl_status_t dnnl_convolution_forward_primitive_desc_create(
    dnnl_primitive_desc_t* made, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, dnnl_alg_kind_t algorithm, ConstMemoryPointer src,
    ConstMemoryPointer weights, ConstMemoryPointer bias, ConstMemoryPointer dst, const dnnl_dims_t strides,
    const dnnl_dims_t dilates, const dnnl_dims_t padding_l, const dnnl_dims_t padding_r, const_dnnl_primitive_attr_t attributes) {
  dnnl_convolution_desc_t operation;
  const auto written =
      dnnl_dilated_convolution_forward_desc_init(&operation, prop_kind, algorithm, src, weights, bias, dst, strides, dilates, padding_l, padding_r);
  return describe_operation(written, &operation, made, engine, attributes);
}
inline dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(
    dnnl_primitive_desc_t* made, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, ConstMemoryPointer diff_src,
    ConstMemoryPointer weights, ConstMemoryPointer diff_dst, const dnnl_dims_t strides, const dnnl_dims_t dilates,
    const dnnl_dims_t padding_l, const dnnl_dims_t padding_r, const_dnnl_primitive_desc_t forward, const_dnnl_primitive_attr_t attributes) {
  dnnl_convolution_desc_t operation;
  const auto written = dnnl_dilated_convolution_backward_data_desc_init(&operation, algorithm, diff_src, weights, diff_dst, strides, dilates,
                                                                        padding_l, padding_r);
  return describe_operation(written, &operation, made, engine, attributes, forward);
}
inline dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(
    dnnl_primitive_desc_t* made, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, ConstMemoryPointer src,
    ConstMemoryPointer diff_weights, ConstMemoryPointer diff_bias, ConstMemoryPointer diff_dst, const dnnl_dims_t strides,
    const dnnl_dims_t dilates, const dnnl_dims_t padding_l, const dnnl_dims_t padding_r, const_dnnl_primitive_desc_t forward,
    const_dnnl_primitive_attr_t attributes) {
  dnnl_convolution_desc_t operation;
  const auto written = dnnl_dilated_convolution_backward_weights_desc_init(&operation, algorithm, src, diff_weights, diff_bias, diff_dst, strides,
                                                                           dilates, padding_l, padding_r);
  return describe_operation(written, &operation, made, engine, attributes, forward);
}
inline dnnl_status_t dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t* made, dnnl_engine_t engine, ConstMemoryPointer src,
                                                       ConstMemoryPointer weights, ConstMemoryPointer bias,
                                                       ConstMemoryPointer dst, const_dnnl_primitive_attr_t attributes) {
  dnnl_matmul_desc_t operation;
  return describe_operation(dnnl_matmul_desc_init(&operation, src, weights, bias, dst), &operation, made, engine, attributes);
}

}  // namespace replicator::detail::cpu::onednn
