// SPDX-License-Identifier: Apache-2.0
// NVIDIA's cuBLASLt: how its calls are checked, and who owns what.
#pragma once

#include <cublasLt.h>

#include <map>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/libraries.cuh>

namespace replicator::cuda::cublaslt {

// Throws DeviceError with the call, the error's name and text.
inline void require(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError{std::string{"cuBLASLt: "} + call + " gave " + cublasLtGetStatusName(status) + ": " + cublasLtGetStatusString(status)};
}

// Of a handle or description, which `destroy` gives back.
template <class T, cublasStatus_t (*destroy)(T)>
class Owner {
 public:
  // create(address, arguments...)
  template <class... Arguments, class... Given>
  explicit Owner(cublasStatus_t (*create)(T*, Arguments...), Given... arguments) {
    require(create(&value_, arguments...), "the making of a handle or description");
  }
  Owner(Owner&& other) noexcept : value_{std::exchange(other.value_, nullptr)} {}
  Owner& operator=(Owner&&) = delete;
  ~Owner() {
    if (value_) (void)destroy(value_);
  }
  T get() const { return value_; }

 private:
  T value_ = nullptr;
};

using Handle = Owner<cublasLtHandle_t, &cublasLtDestroy>;
using Description = Owner<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using MatrixLayout = Owner<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

// "cuBLASLt 13.1.0"
inline std::string describe() {
  std::string text = "cuBLASLt ";
  for (const auto part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
    int number = 0;
    (void)cublasLtGetProperty(part, &number);  // fails for an unknown part only
    if (part != MAJOR_VERSION) text += '.';
    text += std::to_string(number);
  }
  return text;
}
inline const bool described = (describe_cublaslt.store(&describe), true);

// The calling thread's handle for its current GPU.
inline cublasLtHandle_t handle() {
  thread_local std::map<int, Handle> own;
  int device = 0;
  REPLICATOR_CUDA_CHECK(cudaGetDevice(&device));
  return own.try_emplace(device, &cublasLtCreate).first->second.get();
}

}  // namespace replicator::cuda::cublaslt
