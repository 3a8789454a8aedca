// SPDX-License-Identifier: Apache-2.0
// Kernels of convolution on float32 or bfloat16 by oneDNN, which chooses the layouts. Sums are in float32. To oneDNN, weights in
// groups have five dimensions. No Layout of the four-dimensional weights can describe that. So these weights stay plain outside,
// and are reordered in the scratch memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <replicator/cpu/convolution.hpp>
#include <replicator/cpu/depthwise_weights.hpp>
#include <replicator/cpu/in_float32.hpp>
#include <replicator/cpu/onednn/onednn_primitive.hpp>

namespace replicator::detail::cpu::onednn {

// The three tensors of a convolution as oneDNN is given them.
struct ConvolutionMemory {
  MemoryDescription x, w, y;
  Extents2d dilation;  // oneDNN counts the elements that are skipped
};

inline ConvolutionMemory convolution_memory(const ConvolutionShapes& s, dnnl_data_type_t type) {
  const std::int64_t groups = s.options.groups;
  const std::array<std::int64_t, 5> grouped{groups, s.w[0] / groups, s.w[1], s.w[2], s.w[3]};
  return {any_layout(extents_of(s.x), type),
          groups == 1 ? any_layout(extents_of(s.w), type) : any_layout(grouped, type),
          any_layout(extents_of(s.y), type),
          {s.options.dilation[0] - 1, s.options.dilation[1] - 1}};
}

inline PrimitiveDescription describe_forward(const ConvolutionShapes& s, dnnl_data_type_t type, dnnl_alg_kind_t algorithm) {
  const auto m = convolution_memory(s, type);
  const auto& o = s.options;
  return describe(&dnnl_convolution_forward_primitive_desc_create, "dnnl_convolution_forward_primitive_desc_create", engine(),
                  dnnl_forward_training, algorithm, m.x.get(), m.w.get(), nullptr, m.y.get(), o.stride.data(), m.dilation.data(),
                  o.padding.low.data(), o.padding.high.data());
}

inline PrimitiveDescription describe_backward_data(const ConvolutionShapes& s, dnnl_data_type_t type, dnnl_alg_kind_t algorithm) {
  const auto forward = describe_forward(s, type, algorithm);
  if (!forward) return {};
  const auto m = convolution_memory(s, type);
  const auto& o = s.options;
  return describe(&dnnl_convolution_backward_data_primitive_desc_create, "dnnl_convolution_backward_data_primitive_desc_create", engine(),
                  algorithm, m.x.get(), m.w.get(), m.y.get(), o.stride.data(), m.dilation.data(), o.padding.low.data(), o.padding.high.data(),
                  forward.get());
}

inline PrimitiveDescription describe_backward_weights(const ConvolutionShapes& s, dnnl_data_type_t type, dnnl_alg_kind_t algorithm) {
  const auto forward = describe_forward(s, type, algorithm);
  if (!forward) return {};
  const auto m = convolution_memory(s, type);
  const auto& o = s.options;
  return describe(&dnnl_convolution_backward_weights_primitive_desc_create, "dnnl_convolution_backward_weights_primitive_desc_create", engine(),
                  algorithm, m.x.get(), m.w.get(), nullptr, m.y.get(), o.stride.data(), m.dilation.data(), o.padding.low.data(),
                  o.padding.high.data(), forward.get());
}

// Whether to use Winograd's algorithm F(4x4, 3x3) (Lavin and Gray, arXiv:1509.09308). It transforms tiles of images and weights,
// and needs a quarter of the products. The transforms' rounding leaves an error of 1e-6 of the results' root mean square. That is
// several times the error of a sum of products.
//
// Measured with one thread and two, it takes a third to three quarters of the time where there are enough tiles and channels. It
// takes several times as long where few tiles share the transforms of many weights.
//
// The choice decides bits, so it depends on shapes alone. Winograd's algorithm is never used where rows are padded more on one
// side, because oneDNN 2.6.3 computes wrong gradients of images there.
inline bool winograd_pays(const ConvolutionShapes& s) {
  constexpr std::int64_t tile = 4, least_tiles = 64, least_channels = 32;
  const auto& o = s.options;
  const bool possible = s.w[2] == 3 && s.w[3] == 3 && o.stride == Extents2d{1, 1} && o.dilation == Extents2d{1, 1} && o.groups == 1 &&
                        o.padding.low == o.padding.high;
  const auto tiles = [&](std::int64_t axis) { return (s.y[axis] + tile - 1) / tile; };
  return possible && std::min(s.w[0], s.w[1]) >= least_channels && s.y[0] * tiles(2) * tiles(3) >= least_tiles;
}

// Whether a row or a column of the weights only ever meets the padding of the images. Its gradient is zero.
inline bool some_weights_meet_padding_only(const ConvolutionShapes& s) {
  const auto& o = s.options;
  for (std::size_t axis = 0; axis < 2; ++axis)
    for (std::int64_t k = 0; k < s.w[axis + 2]; ++k) {
      bool met = false;
      for (std::int64_t y = 0; y < s.y[axis + 2] && !met; ++y) {
        const auto x = y * o.stride[axis] + k * o.dilation[axis] - o.padding.low[axis];
        met = x >= 0 && x < s.x[axis + 2];
      }
      if (!met) return true;
    }
  return false;
}

// A convolution primitive with two inputs and one output, in the order of the operation.
class ConvolutionPrimitive final : public Executable {
 public:
  struct Role {
    int argument;        // DNNL_ARG_...
    dnnl_query_t query;  // of its memory description
  };
  struct Roles {
    std::array<Role, 3> tensors;  // input 0, input 1, output 0
    std::size_t weights;          // index of the weights in `tensors`
    std::string_view winograd;    // name of the kernel by Winograd's algorithm
  };

  ConvolutionPrimitive(PrimitiveDescription description, const Roles& roles, std::int64_t groups)
      : roles_{roles}, primitive_{std::move(description)} {
    scratch_bytes = aligned(primitive_.scratch_bytes());
    for (std::size_t i = 0; i < 3; ++i) {
      memory_[i] = primitive_.memory(roles_.tensors[i].query);
      const bool grouped = i == roles_.weights && groups > 1;
      if (grouped) keep_weights_plain();
      const auto layout = grouped ? Layout{} : layout_of(memory_[i]);
      expressible_ = expressible_ && layout;
      (i < 2 ? input_layouts : output_layouts).push_back(layout.value_or(Layout{}));
    }
    in_place = {-1};
  }

  // False where oneDNN chose a layout that no Layout can describe. Another kernel must then be taken.
  bool expressible() const { return expressible_; }
  // For gradients of weights in bfloat16, where some weights meet padding only. The kernel for AMX of oneDNN 2.6.3 never writes
  // their sums in its scratch memory, and returns what was there.
  void clear_scratch() { clear_ = primitive_.scratch_bytes(); }
  void call_winograd() {
    kernel = roles_.winograd;
    arithmetic = 0.25;
  }

  void run(const Launch& launch) const override {
    std::array<const std::byte*, 3> data{launch.inputs[0], launch.inputs[1], launch.outputs[0]};
    const std::byte* const weights = data[roles_.weights];
    std::byte* const inner = launch.scratch + inner_at_;
    if (reorder_) data[roles_.weights] = inner;
    if (reorder_ && roles_.weights < 2) reorder(DNNL_ARG_FROM, weights, DNNL_ARG_TO, inner, launch.scratch);
    const Argument arguments[] = {{roles_.tensors[0].argument, &memory_[0], data[0]},
                                  {roles_.tensors[1].argument, &memory_[1], data[1]},
                                  {roles_.tensors[2].argument, &memory_[2], data[2]}};
    if (clear_ > 0) std::memset(launch.scratch, 0, clear_);
    primitive_.run(arguments, launch.scratch);
    if (reorder_ && roles_.weights == 2) reorder(DNNL_ARG_TO, weights, DNNL_ARG_FROM, inner, launch.scratch);
  }

 private:
  // The scratch memory holds oneDNN's own, then the weights in oneDNN's layout. Both primitives share the first part, because
  // they run one after the other.
  void keep_weights_plain() {
    const auto& inner = memory_[roles_.weights];
    plain_ = strided(inner.extents(), inner.type());
    if (plain_ == inner) return;
    reorder_ = Primitive{roles_.weights < 2 ? describe_reorder(plain_, inner) : describe_reorder(inner, plain_)};
    inner_at_ = std::max(scratch_bytes, aligned(reorder_.scratch_bytes()));
    scratch_bytes = inner_at_ + aligned(inner.bytes());
  }
  void reorder(int plain_role, const std::byte* plain, int inner_role, const std::byte* inner,
               std::byte* scratch) const {
    const Argument arguments[] = {{plain_role, &plain_, plain}, {inner_role, &memory_[roles_.weights], inner}};
    reorder_.run(arguments, scratch);
  }

  Roles roles_;
  Primitive primitive_;
  std::array<MemoryDescription, 3> memory_;
  bool expressible_ = true;
  Primitive reorder_;  // empty unless the weights are in groups
  MemoryDescription plain_;
  std::size_t inner_at_ = 0;
  std::size_t clear_ = 0;  // bytes of scratch memory that must be zero
};

using DescribeConvolution = PrimitiveDescription (*)(const ConvolutionShapes&, dnnl_data_type_t, dnnl_alg_kind_t);

// Null where oneDNN has no implementation, or chooses a layout that no Layout can describe.
inline std::unique_ptr<ConvolutionPrimitive> make_by(dnnl_alg_kind_t algorithm, const ConvolutionShapes& s, DType dtype, DescribeConvolution describe,
                                                     const ConvolutionPrimitive::Roles& roles) {
  auto described = describe(s, *data_type(dtype), algorithm);
  if (!described) return nullptr;
  auto made = std::make_unique<ConvolutionPrimitive>(std::move(described), roles, s.options.groups);
  if (roles.weights == 2 && dtype == DType::bfloat16 && some_weights_meet_padding_only(s)) made->clear_scratch();
  return made->expressible() ? std::move(made) : nullptr;
}

inline std::unique_ptr<Executable> make_convolution(const ConvolutionShapes& s, const KernelRequest& request, DescribeConvolution describe,
                                                    const ConvolutionPrimitive::Roles& roles,
                                                    std::unique_ptr<Executable> (*make)(const KernelRequest&)) {
  const DType dtype = request.outputs[0].dtype;
  if (dtype != DType::float32 && dtype != DType::bfloat16) return nullptr;
  if (s.x.elements() == 0 || s.w.elements() == 0) return nullptr;
  const OpenMpThreads guard{request.threads};
  if (dtype == DType::float32 && request.choice.winograd && winograd_pays(s))
    if (auto made = make_by(dnnl_convolution_winograd, s, dtype, describe, roles)) {
      made->call_winograd();
      return made;
    }
  if (auto made = make_by(dnnl_convolution_direct, s, dtype, describe, roles)) return made;
  return dtype == DType::bfloat16 ? in_float32(request, make) : nullptr;
}

inline std::unique_ptr<Executable> make_forward(const KernelRequest& request) {
  return make_convolution(shapes_of(*request.operation.get<Convolution>(), request), request,
                          &describe_forward,
                          {{{{DNNL_ARG_SRC, dnnl_query_src_md},
                             {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                             {DNNL_ARG_DST, dnnl_query_dst_md}}},
                           1,
                           "oneDNN convolution (Winograd)"},
                          &make_forward);
}

inline std::unique_ptr<Executable> make_backward_data(const KernelRequest& request) {
  return make_convolution(shapes_of(*request.operation.get<ConvolutionBackwardData>(), request), request,
                          &describe_backward_data,
                          {{{{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md},
                             {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                             {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md}}},
                           1,
                           "oneDNN convolution backward data (Winograd)"},
                          &make_backward_data);
}

inline std::unique_ptr<Executable> make_backward_weights(const KernelRequest& request) {
  if (auto made = make_depthwise_weights(request)) return made;
  return make_convolution(shapes_of(*request.operation.get<ConvolutionBackwardWeights>(), request),
                          request, &describe_backward_weights,
                          {{{{DNNL_ARG_SRC, dnnl_query_src_md},
                             {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md},
                             {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md}}},
                           2,
                           "oneDNN convolution backward weights (Winograd)"},
                          &make_backward_weights);
}

inline constexpr Kernel convolution_forward{"oneDNN convolution", &make_forward};
inline constexpr Kernel convolution_backward_data{"oneDNN convolution backward data", &make_backward_data};
inline constexpr Kernel convolution_backward_weights{"oneDNN convolution backward weights", &make_backward_weights};

inline const bool convolution_registered =
    register_kernel<Convolution>(DeviceKind::cpu, KernelTier::library, &convolution_forward) &&
    register_kernel<ConvolutionBackwardData>(DeviceKind::cpu, KernelTier::library, &convolution_backward_data) &&
    register_kernel<ConvolutionBackwardWeights>(DeviceKind::cpu, KernelTier::library, &convolution_backward_weights);

}  // namespace replicator::detail::cpu::onednn
