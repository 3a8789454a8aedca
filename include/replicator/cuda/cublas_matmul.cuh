// SPDX-License-Identifier: Apache-2.0
// Products of matrices of float32, float64 or bfloat16 by cuBLAS's plain calls: sums are of float32 or float64, and float32 is never
// shortened to TF32. The workspace is the launch's, so that the bits do not depend on what else the GPU does.
#pragma once

#include <cublas_v2.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/libraries.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/matmul.hpp>

namespace replicator::cuda::cublas {

// Throws DeviceError with the call, the error's name and text.
inline void require(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError{std::string{"cuBLAS: "} + call + " gave " + cublasGetStatusName(status) + ": " + cublasGetStatusString(status)};
}

class Handle {
 public:
  Handle() { require(cublasCreate(&value_), "cublasCreate"); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { (void)cublasDestroy(value_); }
  cublasHandle_t get() const { return value_; }

 private:
  cublasHandle_t value_ = nullptr;
};

// The calling thread's handle for its current GPU.
inline cublasHandle_t handle() {
  thread_local std::map<int, Handle> own;
  int device = 0;
  REPLICATOR_CUDA_CHECK(cudaGetDevice(&device));
  return own[device].get();
}

// What NVIDIA advises for Hopper; smaller GPUs need less. It must be aligned to 256 bytes, which scratch memory need not be.
inline constexpr std::size_t workspace_bytes = std::size_t{32} << 20, workspace_alignment = 256;

// A tensor of matrices as cuBLAS sees it: by columns, so row-major memory is the transpose.
struct Operand {
  cublasOperation_t operation;
  int leading;           // elements from one row in memory to the next
  long long int stride;  // elements from one matrix to the next, 0 where there is but one
};

class MatmulExecutable final : public Executable {
 public:
  MatmulExecutable(const MatmulExtents& extents, Operand a, Operand b, DType dtype) : extents_{extents}, a_{a}, b_{b}, dtype_{dtype} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
    scratch_bytes = workspace_bytes + workspace_alignment;
  }
  void run(const Launch& launch) const override {
    const cublasHandle_t on = handle();
    require(cublasSetStream(on, stream_of(launch.stream)), "cublasSetStream");  // which takes the workspace away
    const auto beyond = reinterpret_cast<std::uintptr_t>(launch.scratch) % workspace_alignment;
    require(cublasSetWorkspace(on, launch.scratch + (workspace_alignment - beyond), workspace_bytes), "cublasSetWorkspace");
    if (dtype_ == DType::float64) multiply<double>(on, launch, CUDA_R_64F, CUBLAS_COMPUTE_64F);
    else if (dtype_ == DType::bfloat16) multiply<float>(on, launch, CUDA_R_16BF, CUBLAS_COMPUTE_32F);
    else multiply<float>(on, launch, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC);
  }

 private:
  // y^T = b^T a^T, where each matrix seen by columns is its own transpose.
  template <class Scalar>
  void multiply(cublasHandle_t on, const Launch& launch, cudaDataType type, cublasComputeType_t compute) const {
    const Scalar one = 1, zero = 0;
    const auto rows = static_cast<int>(extents_.rows), columns = static_cast<int>(extents_.columns);
    require(cublasGemmStridedBatchedEx(on, b_.operation, a_.operation, columns, rows, static_cast<int>(extents_.depth), &one, launch.inputs[1], type,
                                       b_.leading, b_.stride, launch.inputs[0], type, a_.leading, a_.stride, &zero, launch.outputs[0], type, columns,
                                       extents_.rows * extents_.columns, static_cast<int>(extents_.batch), compute, CUBLAS_GEMM_DEFAULT),
            "cublasGemmStridedBatchedEx");
  }

  MatmulExtents extents_;
  Operand a_, b_;
  DType dtype_;
};

// Null where matrices are repeated in another way than one for all, and for what cuBLAS does not take.
inline std::unique_ptr<Executable> make_matmul(const KernelRequest& request) {
  const auto& op = *request.operation.get<Matmul>();
  const DType dtype = request.outputs[0].dtype;
  const auto e = matmul_extents(op, request.inputs[0].shape, request.inputs[1].shape);
  const auto batch = matmul_batch(op, request.inputs[0].shape, request.inputs[1].shape);
  if (dtype != DType::float32 && dtype != DType::float64 && dtype != DType::bfloat16) return nullptr;
  for (const auto extent : {e.batch, e.rows, e.columns, e.depth})
    if (extent < 1 || extent > std::numeric_limits<int>::max()) return nullptr;
  const MatmulBatch::Pair step = e.batch > 1 ? batch.of(1) : MatmulBatch::Pair{};
  for (std::int64_t n = 0; n < e.batch; ++n)
    if (const auto at = batch.of(n); at.a != n * step.a || at.b != n * step.b) return nullptr;
  const auto operand = [](std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t matrices) {
    return Operand{transposed ? CUBLAS_OP_T : CUBLAS_OP_N, static_cast<int>(transposed ? rows : columns), matrices * rows * columns};
  };
  return std::make_unique<MatmulExecutable>(e, operand(e.rows, e.depth, op.transpose_a, step.a), operand(e.depth, e.columns, op.transpose_b, step.b),
                                            dtype);
}
inline constexpr Kernel matmul_kernel{"cuBLAS", &make_matmul};
inline const bool matmul_registered = register_kernel<Matmul>(DeviceKind::cuda, KernelTier::library, &matmul_kernel);

}  // namespace replicator::cuda::cublas
