// SPDX-License-Identifier: Apache-2.0
// Checked calls of NVIDIA's cuBLASLt, and owners of its handles and descriptions.
#pragma once

#include <cublasLt.h>

#include <string>

#include <replicator/core/error.hpp>
#include <replicator/cuda/libraries/libraries.cuh>
#include <replicator/cuda/libraries/owned.cuh>

namespace replicator::detail::cuda::cublaslt {

// Throws DeviceError with the call, the error's name and its text.
inline void require(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError{std::string{"cuBLASLt: "} + call + " gave " + cublasLtGetStatusName(status) + ": " + cublasLtGetStatusString(status)};
}

// Owns what create(address, arguments...) made.
template <class T, cublasStatus_t (*destroy)(T)>
class Owner : public Owned<T, destroy> {
 public:
  template <class... Arguments, class... Given>
  explicit Owner(cublasStatus_t (*create)(T*, Arguments...), Given... arguments) : Owned<T, destroy>{made(create, arguments...)} {}

 private:
  template <class Create, class... Given>
  static T made(Create create, Given... arguments) {
    T value = nullptr;
    require(create(&value, arguments...), "the making of a handle or description");
    return value;
  }
};

using Handle = Owner<cublasLtHandle_t, &cublasLtDestroy>;
using Description = Owner<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using MatrixLayout = Owner<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

// For example "cuBLASLt 13.1.0".
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
inline cublasLtHandle_t handle() { return handle_for_current_gpu<Handle>(&cublasLtCreate); }

}  // namespace replicator::detail::cuda::cublaslt
