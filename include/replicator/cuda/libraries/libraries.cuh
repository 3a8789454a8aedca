// SPDX-License-Identifier: Apache-2.0
// Describes the libraries that have kernels on GPUs, with everything about them that decides bits.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <string>

#include <replicator/devices/kernel_library_text.hpp>

namespace replicator::detail::cuda {

// Each library of the program stores a function here that gives its name and version, for example "cuDNN 9.19.0".
inline constinit std::atomic<DescribeKernelLibrary> describe_cudnn{}, describe_cublaslt{};

// For example "cuDNN 9.19.0, cuBLASLt 13.1.0 for NVIDIA H200 (sm_90)". The libraries choose their algorithms by the GPU.
inline std::string describe_libraries() {
  std::string text;
  for (const auto* slot : {&describe_cudnn, &describe_cublaslt})
    if (const auto describe = slot->load()) text += (text.empty() ? "" : ", ") + describe();
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess)  // all GPUs of a job are assumed to be of one kind
    return text + " for " + properties.name + " (sm_" + std::to_string(properties.major) + std::to_string(properties.minor) + ")";
  (void)cudaGetLastError();  // no GPU: nothing will be computed by them
  return text;
}

inline const bool libraries_registered = [] {
  kernel_library_slot[static_cast<std::size_t>(DeviceKind::cuda)].store(&describe_libraries);
  return true;
}();

}  // namespace replicator::detail::cuda
