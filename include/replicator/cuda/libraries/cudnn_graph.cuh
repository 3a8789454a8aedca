// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph interface: operations on tensors, which an engine computes in as few kernels as it can. Everything is a
// descriptor. It is given attributes, then finalised, and from then on only read. Names are those of NVIDIA's cuDNN backend reference.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <replicator/core/dtype.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/cuda/libraries/cudnn.cuh>
#include <replicator/devices/kernel_choice.hpp>

namespace replicator::detail::cuda::cudnn {

// Thrown where cuDNN cannot compute a graph. It is caught where another kernel can be taken.
struct Unsupported : DeviceError {
  Unsupported() : DeviceError{"cuDNN has no engine on this GPU for a graph that it was to compute"} {}
};

inline void require_supported(cudnnStatus_t status, const char* call) {
  if (declines(status) || status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED) throw Unsupported{};
  require(status, call);
}

// cuDNN's names for types of attributes. Pointers to data are pointers to bytes, because a descriptor is a pointer to void.
template <class T>
inline constexpr cudnnBackendAttributeType_t attribute_type{};
template <>
inline constexpr auto attribute_type<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr auto attribute_type<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr auto attribute_type<std::int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr auto attribute_type<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr auto attribute_type<const std::byte*> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr auto attribute_type<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr auto attribute_type<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr auto attribute_type<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;
template <>
inline constexpr auto attribute_type<cudnnBackendDescriptor_t> = CUDNN_TYPE_BACKEND_DESCRIPTOR;
template <>
inline constexpr auto attribute_type<cudnnGenStatsMode_t> = CUDNN_TYPE_GENSTATS_MODE;
template <>
inline constexpr auto attribute_type<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr auto attribute_type<cudnnNanPropagation_t> = CUDNN_TYPE_NAN_PROPOGATION;
template <>
inline constexpr auto attribute_type<bool> = CUDNN_TYPE_BOOLEAN;

// An owned descriptor. Throws Unsupported where cuDNN declines, and DeviceError for any other failure.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) : descriptor_{made(type)} {}
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

  template <class T>
  Descriptor& set_all(cudnnBackendAttributeName_t name, std::span<const T> values) {
    require_supported(cudnnBackendSetAttribute(get(), name, attribute_type<T>, static_cast<std::int64_t>(values.size()), values.data()),
                      "cudnnBackendSetAttribute");
    return *this;
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set_all(name, std::span<const T>{&value, 1});
  }
  Descriptor& finalise() {
    require_supported(cudnnBackendFinalize(get()), "cudnnBackendFinalize");
    return *this;
  }

  // Reads into `values`, and shortens it where there are fewer. Descriptors are filled, not replaced.
  template <class T>
  void read(cudnnBackendAttributeName_t name, std::vector<T>& values) const {
    std::int64_t count = 0;
    require_supported(cudnnBackendGetAttribute(get(), name, attribute_type<T>, static_cast<std::int64_t>(values.size()), &count, values.data()),
                      "cudnnBackendGetAttribute");
    if (static_cast<std::size_t>(count) < values.size()) values.resize(static_cast<std::size_t>(count));
  }
  // The number of values.
  template <class T>
  std::int64_t count(cudnnBackendAttributeName_t name) const {
    std::int64_t count = 0;
    require_supported(cudnnBackendGetAttribute(get(), name, attribute_type<T>, 0, &count, nullptr), "cudnnBackendGetAttribute");
    return count;
  }

 private:
  static cudnnBackendDescriptor_t made(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t value = nullptr;
    require(cudnnBackendCreateDescriptor(type, &value), "cudnnBackendCreateDescriptor");
    return value;
  }
  Owned<cudnnBackendDescriptor_t, &cudnnBackendDestroyDescriptor> descriptor_;
};

// A tensor of a graph. The buffer with its number is bound when the graph runs. A `passing` tensor has no buffer: one operation
// gives it to others of the graph, and it is never in memory.
struct GraphTensor {
  std::int64_t number = 0;
  DType dtype = DType::float32;
  std::vector<std::int64_t> extents, strides;  // in elements
  bool passing = false;
};

// Operations in the order in which they are added. They share tensors by their descriptors.
class OperationGraph {
 public:
  // Alignment of values and workspaces in memory, in bytes.
  static constexpr std::int64_t alignment = 16;

  cudnnBackendDescriptor_t tensor(const GraphTensor& t) {
    return keep(Descriptor{CUDNN_BACKEND_TENSOR_DESCRIPTOR})
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, t.number)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(t.dtype))
        .set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span{t.extents})
        .set_all(CUDNN_ATTR_TENSOR_STRIDES, std::span{t.strides})
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.passing)
        .finalise()
        .get();
  }
  Descriptor& keep(Descriptor descriptor) { return *kept_.emplace_back(std::make_unique<Descriptor>(std::move(descriptor))); }
  void add(Descriptor& operation) { operations_.push_back(operation.finalise().get()); }

  Descriptor& finalise(cudnnHandle_t on) {
    return keep(Descriptor{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR})
        .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, on)
        .set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const cudnnBackendDescriptor_t>{operations_})
        .finalise();
  }

 private:
  std::vector<std::unique_ptr<Descriptor>> kept_;  // pointers, so that addresses stay
  std::vector<cudnnBackendDescriptor_t> operations_;
};

using NumericalNotes = std::vector<cudnnBackendNumericalNote_t>;

// Whether an engine with these notes may be taken. As with the plain calls, it must add the products themselves, always in the
// same order. For float32 it must not use tensor cores. KernelChoice allows more.
inline bool may_be_taken(const NumericalNotes& notes, DType dtype, const KernelChoice& choice) {
  const auto has = [&](std::initializer_list<cudnnBackendNumericalNote_t> any) {
    return std::find_first_of(notes.begin(), notes.end(), any.begin(), any.end()) != notes.end();
  };
  if (dtype == DType::float32 && !choice.tf32 && has({CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS})) return false;
  return choice.fastest ||
         !has({CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDNN_NUMERICAL_NOTE_FFT,
               CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
               CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13});
}

// A graph with its engine. Of the engines that may be taken it is the one that cuDNN expects to be fastest.
class ExecutionPlan {
 public:
  // Throws Unsupported where no engine that may be taken has a small enough workspace.
  ExecutionPlan(OperationGraph graph, cudnnHandle_t on, DType dtype, const KernelChoice& choice)
      : graph_{std::move(graph)} {
    const Descriptor& whole = graph_.finalise(on);
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      if (take_first(whole, on, mode, dtype, choice)) return;
    throw Unsupported{};
  }
  std::size_t workspace() const { return workspace_; }

  // Reads and writes data[i] as the tensor with number i. The workspace has workspace() bytes.
  void run(cudnnHandle_t on, std::span<const std::byte* const> data, const std::byte* workspace) const {
    std::vector<std::int64_t> numbers(data.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i);
    Descriptor pack{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR};
    pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>{numbers})
        .set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
        .finalise();
    require(cudnnBackendExecute(on, plan_->get(), pack.get()), "cudnnBackendExecute");
  }

 private:
  static std::vector<Descriptor> ranked(const Descriptor& heuristics) {
    std::vector<Descriptor> result;
    std::vector<cudnnBackendDescriptor_t> filled;
    const auto count = heuristics.count<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_RESULTS);
    for (std::int64_t i = 0; i < count; ++i) filled.push_back(result.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    if (count > 0) heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, filled);
    while (result.size() > filled.size()) result.pop_back();
    return result;
  }
  static NumericalNotes notes_of(const Descriptor& configuration) {
    const Descriptor engine{CUDNN_BACKEND_ENGINE_DESCRIPTOR};
    std::vector<cudnnBackendDescriptor_t> filled{engine.get()};
    configuration.read(CUDNN_ATTR_ENGINECFG_ENGINE, filled);
    NumericalNotes notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    engine.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, notes);
    return notes;
  }
  bool take_first(const Descriptor& whole, cudnnHandle_t on, cudnnBackendHeurMode_t mode, DType dtype, const KernelChoice& choice) try {
    Descriptor heuristics{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole.get()).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode).finalise();
    auto configurations = ranked(heuristics);
    for (auto& configuration : configurations)
      if (may_be_taken(notes_of(configuration), dtype, choice) && take(std::move(configuration), on)) return true;
    return false;
  } catch (const Unsupported&) {
    return false;  // that mode ranks nothing for such a graph
  }
  bool take(Descriptor configuration, cudnnHandle_t on) try {
    Descriptor plan{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, on).set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration.get()).finalise();
    std::vector<std::int64_t> bytes(1);
    plan.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, bytes);
    if (static_cast<std::size_t>(bytes.at(0)) > most_workspace) return false;
    workspace_ = static_cast<std::size_t>(bytes[0]);
    configuration_.emplace(std::move(configuration));
    plan_.emplace(std::move(plan));
    return true;
  } catch (const Unsupported&) {
    return false;  // the next engine
  }

  OperationGraph graph_;
  std::optional<Descriptor> configuration_, plan_;
  std::size_t workspace_ = 0;
};

// Makes a plan for the current GPU. A plan may use the handle that it was made with, in any thread that runs it. So this handle
// belongs to the process, and threads take turns with it.
inline std::unique_ptr<const ExecutionPlan> make_plan(OperationGraph graph, DType dtype, const KernelChoice& choice) {
  static std::mutex gate;
  static auto& handles = *new std::map<int, Handle>;  // by GPU; never destroyed, as those of handle_for_current_gpu
  int device = 0;
  REPLICATOR_CUDA_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock{gate};
  return std::make_unique<const ExecutionPlan>(std::move(graph), handles[device].get(), dtype, choice);
}

}  // namespace replicator::detail::cuda::cudnn
