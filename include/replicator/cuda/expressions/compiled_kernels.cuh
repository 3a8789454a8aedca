// SPDX-License-Identifier: Apache-2.0
// Kernels that NVRTC compiles while a step is planned. The process keeps one for each source and kind of GPU.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/expression_source.hpp>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/libraries/nvrtc.hpp>
#include <replicator/graph/kernel.hpp>

namespace replicator::detail::cuda {

// The machine code of one source. It serves all GPUs of its kind, and lives as long as the process.
class CompiledKernels {
 public:
  // Throws DeviceError.
  explicit CompiledKernels(const std::string& cubin) {
    REPLICATOR_CUDA_CHECK(cudaLibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  // Asks for the kernel's attributes, which loads it onto the current GPU. Otherwise it would be loaded during a step.
  cudaKernel_t kernel(const char* name) const {
    cudaKernel_t kernel = nullptr;
    REPLICATOR_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library_, name));
    cudaFuncAttributes attributes{};
    REPLICATOR_CUDA_CHECK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
    return kernel;
  }

 private:
  cudaLibrary_t library_ = nullptr;
};

class ExpressionCompiler {
 public:
  // The process's one compiler. Never destroyed: the driver may be gone when a process ends.
  static ExpressionCompiler& instance() {
    static auto& compiler = *new ExpressionCompiler;
    return compiler;
  }

  // Null where the interpreter must be used: there is no GPU, or the source cannot be compiled. In the second case stderr gets
  // the reason, once.
  const CompiledKernels* compile(const std::string& source) {
    const std::lock_guard lock{mutex_};
    const std::string architecture = architecture_of_current();
    if (architecture.empty() || !available()) return nullptr;
    const auto [entry, is_new] = compiled_.try_emplace({architecture, source}, nullptr);
    if (!is_new) return entry->second;
    try {
      entry->second = new CompiledKernels{compile_to_cubin(source, architecture)};
    } catch (const DeviceError& error) {
      say(error.what());
    }
    return entry->second;
  }

 private:
  ExpressionCompiler() = default;

  bool available() {
    if (asked_) return available_;
    const std::string reason = reason_to_interpret(std::getenv("REPLICATOR_CUDA_EXPRESSIONS"), CUDART_VERSION);
    if (!reason.empty()) say(reason);
    asked_ = true;
    return available_ = reason.empty();
  }
  // For example "sm_90". Empty where there is no GPU.
  static std::string architecture_of_current() {
    int device = 0, major = 0, minor = 0;
    if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
      (void)cudaGetLastError();
      return {};
    }
    return "sm_" + std::to_string(major) + std::to_string(minor);
  }
  static void say(const std::string& reason) { std::fprintf(stderr, "replicator: expressions are interpreted on GPUs: %s\n", reason.c_str()); }

  std::mutex mutex_;
  bool asked_ = false, available_ = false;
  std::map<std::pair<std::string, std::string>, const CompiledKernels*> compiled_;  // by architecture and source
};

// A kernel's first argument: the words of a source, with the addresses of its operands.
class BoundProgram {
 public:
  BoundProgram(const std::vector<std::uint64_t>& words, const Executable& executable, const std::byte* const* inputs, std::byte* const* outputs) {
    std::copy(words.begin(), words.end(), words_);
    const auto address = [](const std::byte* operand) { return reinterpret_cast<std::uintptr_t>(operand); };
    auto* const addresses = std::transform(inputs, inputs + executable.input_layouts.size(), words_ + ExpressionSource::first_address, address);
    std::transform(outputs, outputs + executable.output_layouts.size(), addresses, address);
  }
  void* argument() { return words_; }

 private:
  alignas(16) std::uint64_t words_[most_argument_words];
};

// `arguments` point to the kernel's arguments.
inline void launch_compiled(cudaKernel_t kernel, unsigned blocks, unsigned threads, const Launch& launch, std::initializer_list<void*> arguments) {
  REPLICATOR_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3{blocks}, dim3{threads},
                                         const_cast<void**>(arguments.begin()), 0, stream_of(launch.stream)));
}

}  // namespace replicator::detail::cuda
