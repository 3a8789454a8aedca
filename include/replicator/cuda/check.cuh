// SPDX-License-Identifier: Apache-2.0
// The one macro by which calls of the CUDA runtime are checked.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include <replicator/core/error.hpp>
#include <replicator/core/location.hpp>

namespace replicator::detail::cuda {

[[noreturn]] inline void fail(cudaError_t error, const char* expression, Location where) {
  (void)cudaGetLastError();  // clears the error: the next check must not find it again
  throw DeviceError{std::string{"CUDA: "} + expression + " at " + where.text() + " gave " + cudaGetErrorName(error) + ": " +
                    cudaGetErrorString(error)};
}

}  // namespace replicator::detail::cuda

// Evaluates the expression once. Throws DeviceError with the expression, its place, the error's name and its text.
#define REPLICATOR_CUDA_CHECK(expression)                                                                          \
  do {                                                                                                             \
    if (const cudaError_t replicator_error = (expression); replicator_error != cudaSuccess)                        \
      ::replicator::detail::cuda::fail(replicator_error, #expression, ::replicator::Location{__FILE__, __LINE__}); \
  } while (false)
