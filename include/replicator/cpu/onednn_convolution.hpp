// SPDX-License-Identifier: Apache-2.0
// Convolution of float32 or bfloat16 by oneDNN, which chooses the layouts; the sums are of float32. Weights in groups
// have five dimensions there, which no Layout of the four-dimensional weights can say: those are kept plain outside and
// reordered in the scratch memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <replicator/cpu/convolution.hpp>
#include <replicator/cpu/in_float32.hpp>
#include <replicator/cpu/onednn_primitive.hpp>

namespace replicator::cpu::onednn {

// The three tensors of a convolution as oneDNN is asked for them.
struct ConvolutionMemory {
  MemoryDescription x, w, y;
  Extents2d dilation;  // oneDNN counts the elements left out
};

inline ConvolutionMemory convolution_memory(const ConvolutionShapes& s, dnnl_data_type_t type) {
  const std::int64_t groups = s.options.groups;
  const std::array<std::int64_t, 5> grouped{groups, s.w[0] / groups, s.w[1], s.w[2], s.w[3]};
  return {any_layout(extents_of(s.x), type),
          groups == 1 ? any_layout(extents_of(s.w), type) : any_layout(grouped, type),
          any_layout(extents_of(s.y), type),
          {s.options.dilation[0] - 1, s.options.dilation[1] - 1}};
}

inline PrimitiveDescription describe_forward(const ConvolutionShapes& s, dnnl_data_type_t type) {
  const auto m = convolution_memory(s, type);
  const auto& o = s.options;
  return describe(&dnnl_convolution_forward_primitive_desc_create, "dnnl_convolution_forward_primitive_desc_create", engine(),
                  dnnl_forward_training, dnnl_convolution_direct, m.x.get(), m.w.get(), nullptr, m.y.get(), o.stride.data(), m.dilation.data(),
                  o.padding.low.data(), o.padding.high.data());
}

inline PrimitiveDescription describe_backward_data(const ConvolutionShapes& s, dnnl_data_type_t type) {
  const auto forward = describe_forward(s, type);
  if (!forward) return {};
  const auto m = convolution_memory(s, type);
  const auto& o = s.options;
  return describe(&dnnl_convolution_backward_data_primitive_desc_create, "dnnl_convolution_backward_data_primitive_desc_create", engine(),
                  dnnl_convolution_direct, m.x.get(), m.w.get(), m.y.get(), o.stride.data(), m.dilation.data(), o.padding.low.data(),
                  o.padding.high.data(), forward.get());
}

inline PrimitiveDescription describe_backward_weights(const ConvolutionShapes& s, dnnl_data_type_t type) {
  const auto forward = describe_forward(s, type);
  if (!forward) return {};
  const auto m = convolution_memory(s, type);
  const auto& o = s.options;
  return describe(&dnnl_convolution_backward_weights_primitive_desc_create, "dnnl_convolution_backward_weights_primitive_desc_create", engine(),
                  dnnl_convolution_direct, m.x.get(), m.w.get(), nullptr, m.y.get(), o.stride.data(), m.dilation.data(), o.padding.low.data(),
                  o.padding.high.data(), forward.get());
}

// Two inputs and one output in the order of the operation.
class ConvolutionPrimitive final : public Executable {
 public:
  struct Role {
    int argument;        // DNNL_ARG_...
    dnnl_query_t query;  // of its memory description
  };
  struct Roles {
    std::array<Role, 3> tensors;  // input 0, input 1, output 0
    std::size_t weights;          // which of them
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

  // False where oneDNN chose what no Layout can say: then another kernel must be taken.
  bool expressible() const { return expressible_; }

  void run(const Launch& launch) const override {
    std::array<const std::byte*, 3> data{launch.inputs[0], launch.inputs[1], launch.outputs[0]};
    const std::byte* const weights = data[roles_.weights];
    std::byte* const inner = launch.scratch + inner_at_;
    if (reorder_) data[roles_.weights] = inner;
    if (reorder_ && roles_.weights < 2) reorder(DNNL_ARG_FROM, weights, DNNL_ARG_TO, inner, launch.scratch);
    const Argument arguments[] = {{roles_.tensors[0].argument, &memory_[0], data[0]},
                                  {roles_.tensors[1].argument, &memory_[1], data[1]},
                                  {roles_.tensors[2].argument, &memory_[2], data[2]}};
    primitive_.run(arguments, launch.scratch);
    if (reorder_ && roles_.weights == 2) reorder(DNNL_ARG_TO, weights, DNNL_ARG_FROM, inner, launch.scratch);
  }

 private:
  // Scratch: oneDNN's own (shared by both primitives, which run one after the other), then the weights as it wants
  // them.
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
};

inline std::unique_ptr<Executable> make_convolution(
    const ConvolutionShapes& s, const KernelRequest& request,
    PrimitiveDescription (*description)(const ConvolutionShapes&, dnnl_data_type_t),
    const ConvolutionPrimitive::Roles& roles, std::unique_ptr<Executable> (*make)(const KernelRequest&)) {
  const DType dtype = request.outputs[0].dtype;
  if (dtype != DType::float32 && dtype != DType::bfloat16) return nullptr;
  if (s.x.elements() == 0 || s.w.elements() == 0) return nullptr;
  const OpenMpThreads guard{request.threads};
  std::unique_ptr<ConvolutionPrimitive> result;
  if (auto described = description(s, *data_type(dtype)))
    result = std::make_unique<ConvolutionPrimitive>(std::move(described), roles, s.options.groups);
  if (result && result->expressible()) return result;
  return dtype == DType::bfloat16 ? in_float32(request, make) : nullptr;
}

inline std::unique_ptr<Executable> make_forward(const KernelRequest& request) {
  return make_convolution(shapes_of(*request.operation.get<Convolution>(), request), request,
                          &describe_forward,
                          {{{{DNNL_ARG_SRC, dnnl_query_src_md},
                             {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                             {DNNL_ARG_DST, dnnl_query_dst_md}}},
                           1},
                          &make_forward);
}

inline std::unique_ptr<Executable> make_backward_data(const KernelRequest& request) {
  return make_convolution(shapes_of(*request.operation.get<ConvolutionBackwardData>(), request), request,
                          &describe_backward_data,
                          {{{{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md},
                             {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                             {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md}}},
                           1},
                          &make_backward_data);
}

inline std::unique_ptr<Executable> make_backward_weights(const KernelRequest& request) {
  return make_convolution(shapes_of(*request.operation.get<ConvolutionBackwardWeights>(), request),
                          request, &describe_backward_weights,
                          {{{{DNNL_ARG_SRC, dnnl_query_src_md},
                             {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md},
                             {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md}}},
                           2},
                          &make_backward_weights);
}

inline constexpr Kernel convolution_forward{"oneDNN convolution", &make_forward};
inline constexpr Kernel convolution_backward_data{"oneDNN convolution backward data", &make_backward_data};
inline constexpr Kernel convolution_backward_weights{"oneDNN convolution backward weights", &make_backward_weights};

inline const bool convolution_registered =
    register_kernel<Convolution>(DeviceKind::cpu, KernelTier::library, &convolution_forward) &&
    register_kernel<ConvolutionBackwardData>(DeviceKind::cpu, KernelTier::library, &convolution_backward_data) &&
    register_kernel<ConvolutionBackwardWeights>(DeviceKind::cpu, KernelTier::library, &convolution_backward_weights);

}  // namespace replicator::cpu::onednn
