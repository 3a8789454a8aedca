// SPDX-License-Identifier: Apache-2.0
// Execution plans of cuDNN's graph interface: which engines may compute a graph, and which of them does.
//
// cuDNN ranks its engines for a graph by heuristics. The ranking depends only on the graph, the kind of GPU and cuDNN's version,
// and processes compare the latter two before the first step. So the first engine that may be taken is the same in all processes
// and runs. Times differ from run to run, so plans are only timed where KernelChoice::fastest lets bits differ from run to run.
#pragma once

#include <algorithm>
#include <array>
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

#include <replicator/core/shape.hpp>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/libraries/cudnn_graph.cuh>
#include <replicator/cuda/libraries/owned.cuh>
#include <replicator/devices/kernel_choice.hpp>

namespace replicator::detail::cuda::cudnn {

using NumericalNotes = std::vector<cudnnBackendNumericalNote_t>;

// Whether an engine with these notes may be taken. It must add the products themselves, always in the same order. For
// float32 it must not use tensor cores. KernelChoice allows more.
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

// A graph with an engine that computes it.
class ExecutionPlan {
 public:
  // The graph is finalised. Throws Unsupported where cuDNN makes no such plan, or one with too large a workspace.
  ExecutionPlan(std::shared_ptr<const OperationGraph> graph, Descriptor configuration, cudnnHandle_t on)
      : graph_{std::move(graph)}, configuration_{std::move(configuration)}, plan_{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR} {
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, on).set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration_.get()).finalise();
    std::vector<std::int64_t> bytes(1);
    plan_.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, bytes);
    workspace_ = static_cast<std::size_t>(bytes.at(0));
    if (workspace_ > most_workspace) throw Unsupported{};
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
    require(cudnnBackendExecute(on, plan_.get(), pack.get()), "cudnnBackendExecute");
  }

 private:
  std::shared_ptr<const OperationGraph> graph_;
  Descriptor configuration_, plan_;
  std::size_t workspace_ = 0;
};

// Engines with their settings, the one that cuDNN expects to be fastest first. None where the mode ranks nothing for such a graph.
inline std::vector<Descriptor> ranked_engines(const Descriptor& graph, cudnnBackendHeurMode_t mode) try {
  Descriptor heuristics{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get()).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode).finalise();
  std::vector<Descriptor> result;
  std::vector<cudnnBackendDescriptor_t> filled;
  const auto count = heuristics.count<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_RESULTS);
  for (std::int64_t i = 0; i < count; ++i) filled.push_back(result.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (count > 0) heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, filled);
  while (result.size() > filled.size()) result.pop_back();
  return result;
} catch (const Unsupported&) {
  return {};
}

inline NumericalNotes notes_of(const Descriptor& configuration) {
  const Descriptor engine{CUDNN_BACKEND_ENGINE_DESCRIPTOR};
  std::vector<cudnnBackendDescriptor_t> filled{engine.get()};
  configuration.read(CUDNN_ATTR_ENGINECFG_ENGINE, filled);
  NumericalNotes notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  engine.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, notes);
  return notes;
}

// Empty where the engine may not be taken, or cuDNN makes no plan with it.
inline std::optional<ExecutionPlan> plan_by(Descriptor engine, std::shared_ptr<const OperationGraph> graph, cudnnHandle_t on, DType dtype,
                                            const KernelChoice& choice) try {
  if (!may_be_taken(notes_of(engine), dtype, choice)) return std::nullopt;
  return std::optional<ExecutionPlan>{std::in_place, std::move(graph), std::move(engine), on};
} catch (const Unsupported&) {
  return std::nullopt;
}

// The first `most` plans for the current GPU whose engines may be taken, in cuDNN's order. Throws Unsupported where there is none.
//
// A plan may use the handle that it was made with, in any thread that runs it. So this handle belongs to the process, and threads
// take turns with it.
inline std::vector<ExecutionPlan> make_plans(OperationGraph graph, DType dtype, const KernelChoice& choice, std::size_t most) {
  static std::mutex gate;
  static auto& handles = *new std::map<int, Handle>;  // by GPU; never destroyed, as those of handle_for_current_gpu
  const std::lock_guard lock{gate};
  const cudnnHandle_t on = handles[current_gpu()].get();
  const auto shared = std::make_shared<OperationGraph>(std::move(graph));
  const Descriptor& whole = shared->finalise(on);
  std::vector<ExecutionPlan> plans;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (auto& engine : ranked_engines(whole, mode)) {
      if (auto plan = plan_by(std::move(engine), shared, on, dtype, choice)) plans.push_back(std::move(*plan));
      if (plans.size() == most) break;
    }
    if (!plans.empty()) return plans;
  }
  throw Unsupported{};
}

// At most so many plans are timed.
inline constexpr std::size_t most_timed = 4;

// Index of the plan that takes least time on the current GPU: the median of three runs, after one that loads its kernels. Plans
// get zeros in memory of their own. Where that does not fit into the GPU, the first plan is taken untimed.
inline std::size_t fastest_of(std::span<const ExecutionPlan> plans, std::span<const TensorType> tensors) {
  constexpr std::size_t alignment = 256;
  std::size_t bytes = 0;
  const auto place = [&](std::size_t size) { return std::exchange(bytes, (bytes + size + alignment - 1) / alignment * alignment); };
  std::vector<std::size_t> offsets;
  for (const auto& tensor : tensors) offsets.push_back(place(tensor.bytes()));
  std::size_t largest = 0;
  for (const auto& plan : plans) largest = std::max(largest, plan.workspace());
  offsets.push_back(place(largest));
  const auto memory = device_bytes(bytes);
  if (!memory) return 0;
  std::vector<const std::byte*> data;
  for (const auto offset : offsets) data.push_back(static_cast<const std::byte*>(memory->get()) + offset);
  const auto* const workspace = data.back();
  data.pop_back();

  const auto stream = make_stream();
  const auto begin = make_event(), end = make_event();
  REPLICATOR_CUDA_CHECK(cudaMemsetAsync(memory->get(), 0, bytes, stream.get()));
  const cudnnHandle_t on = handle();
  require(cudnnSetStream(on, stream.get()), "cudnnSetStream");
  std::vector<float> medians;
  for (const auto& plan : plans) {
    plan.run(on, data, workspace);
    std::array<float, 3> times{};
    for (float& milliseconds : times) {
      REPLICATOR_CUDA_CHECK(cudaEventRecord(begin.get(), stream.get()));
      plan.run(on, data, workspace);
      REPLICATOR_CUDA_CHECK(cudaEventRecord(end.get(), stream.get()));
      REPLICATOR_CUDA_CHECK(cudaEventSynchronize(end.get()));
      REPLICATOR_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    }
    std::sort(times.begin(), times.end());
    medians.push_back(times[1]);
  }
  return static_cast<std::size_t>(std::min_element(medians.begin(), medians.end()) - medians.begin());
}

}  // namespace replicator::detail::cuda::cudnn
