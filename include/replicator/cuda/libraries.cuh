// SPDX-License-Identifier: Apache-2.0
// What is told of the libraries whose kernels run on GPUs beside ours: all that decides bits.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <cstddef>
#include <string>

#include <replicator/core/kernel_library.hpp>

namespace replicator::cuda {

// "cuDNN 9.19.0, cuBLASLt 13.1.0 for NVIDIA H200 (sm_90)": by the GPU they choose among their algorithms.
inline std::string describe_libraries() {
  const std::size_t cudnn = cudnnGetVersion();  // 91900: 9.19.0
  std::string text = "cuDNN " + std::to_string(cudnn / 10000) + "." + std::to_string(cudnn / 100 % 100) + "." + std::to_string(cudnn % 100);
  text += ", cuBLASLt ";
  for (const auto part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
    int number = 0;
    (void)cublasLtGetProperty(part, &number);  // fails for an unknown part only
    if (part != MAJOR_VERSION) text += '.';
    text += std::to_string(number);
  }
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess)  // all GPUs of a job are taken to be of one kind
    return text + " for " + properties.name + " (sm_" + std::to_string(properties.major) + std::to_string(properties.minor) + ")";
  (void)cudaGetLastError();  // no GPU: nothing will be computed by them
  return text;
}

inline const bool libraries_registered = [] {
  kernel_library_slot[static_cast<std::size_t>(DeviceKind::cuda)].store(&describe_libraries);
  return true;
}();

}  // namespace replicator::cuda
