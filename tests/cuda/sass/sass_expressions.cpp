// SPDX-License-Identifier: Apache-2.0
// Compiles the large Maps and Reduces of a ResNet-50 step by NVRTC for a Hopper, for budget.py. It needs no GPU.
//
// usage: sass_expressions FOLDER
//
// Writes a file of machine code for each source. Prints a line for each: precision, kernel, bytes that a Map stores per element,
// elements in a step of two images, file, formula; between tabs.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/cuda/expressions/expression_source.hpp>
#include <replicator/cuda/libraries/nvrtc.hpp>
#include <replicator/graph/passes/fuse_reduces.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/replicator.hpp>

#include "../kernel_requests.hpp"

namespace {

using namespace replicator;
using namespace replicator::detail;

struct Kernel {
  std::string name, formula;
  std::size_t stored = 0;     // bytes per element of a Map
  std::int64_t elements = 0;  // of all nodes with this source
};
using Kernels = std::map<std::string, Kernel>;  // by source

// Images have their channels last, as behind a convolution of cuDNN.
std::vector<Layout> offered_layouts(const std::vector<TensorType>& inputs) {
  std::vector<Layout> result;
  for (const auto& input : inputs) result.push_back(input.shape.rank() == 4 ? simplest(channels_last(input.shape), input.shape) : Layout{});
  return result;
}

Kernels kernels_of(const Graph& traced) {
  Kernels kernels;
  const auto add = [&](const std::string& source, Kernel kernel) {
    const auto elements = kernel.elements;
    const auto [known, fresh] = kernels.try_emplace(source, std::move(kernel));
    if (!fresh) known->second.elements += elements;
  };
  const auto add_node = [&](const Node& node, const KernelRequest& request) {
    if (const auto* map = operation_of<Map>(node)) {
      const auto source = cuda::map_source(*map->expression, cuda::plan_of(*map, request).operands, map->dtypes);
      if (!source) return;
      std::size_t stored = 0;
      for (const auto dtype : map->dtypes) stored += size_of(dtype);
      const auto formula = map->expression->text(200);
      add(source->text, {"compiled_map", formula, stored, map->domain.elements()});
      if (map->domain.rank() != 4)
        add(cuda::merged_map_source(*source, map->expression->compute), {"compiled_merged_map", formula, stored, map->domain.elements()});
    } else if (const auto* fused = operation_of<FusedReduce>(node)) {
      const auto& reduce = fused->reduce;
      const auto plan = cuda::plan_of(*fused, request);
      const auto source = cuda::reduce_source(reduce.kind, *reduce.expression, plan, *fused->epilogue, fused->dtypes);
      if (source) add(source->text, {"compiled_reduce", reduce.expression->text(200), 0, reduce.domain.elements()});
    } else if (const auto* reduce = operation_of<Reduce>(node)) {
      const auto plan = cuda::plan_of(*reduce, request);
      const auto source = cuda::reduce_source(reduce->kind, *reduce->expression, plan, reduce->dtypes);
      if (source) add(source->text, {"compiled_reduce", reduce->expression->text(200), 0, reduce->domain.elements()});
    }
  };
  test::for_each_request(passes::fuse_reduces(optimise(traced)).graph, add_node, offered_layouts);
  return kernels;
}

Kernels kernels_of_step(DType products) {
  Kernels kernels;
  const char* const arguments[] = {"--replicas", "1", "--input-threads", "1", "--devices", "cpu:0"};
  Replicator repl{Deployment::from(arguments)};
  const auto input_fn = [](const InputContext&) { return std::vector{std::tuple{Array<float>{{2, 3, 224, 224}}, Array<std::int32_t>{{2}}}}; };
  (void)repl.replicate(input_fn, [&](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto mixed = mixed_precision(replica, products);
    const auto loss = mean(softmax_cross_entropy(models::resnet(replica, images, 50, {.classes = 1000}), labels));
    nn::sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-4}).minimize(replica, loss);
    kernels = kernels_of(replica.graph());
    return loss;
  });
  return kernels;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: sass_expressions FOLDER\n", EXIT_FAILURE;
  constexpr std::int64_t large = 100'000;
  int number = 0;
  for (const auto products : {DType::float32, DType::bfloat16})
    for (const auto& [source, kernel] : kernels_of_step(products)) {
      if (kernel.elements < large) continue;
      const auto file = std::filesystem::path{argv[1]} / (std::to_string(number++) + ".cubin");
      std::ofstream{file, std::ios::binary} << cuda::compile_to_cubin(source, "sm_90");
      std::cout << name_of(products) << '\t' << kernel.name << '\t' << kernel.stored << '\t' << kernel.elements << '\t' << file.string() << '\t'
                << kernel.formula << '\n';
    }
}
