// SPDX-License-Identifier: Apache-2.0
// The kernel of matmul on GPUs by cuBLASLt, for float32, float64 and bfloat16. Sums are in float32 or float64. float32 is
// shortened to TF32 only where KernelChoice allows it. The algorithm is chosen once, when the kernel is made, among those that
// always give the same bits. These add split sums in float32 or float64, in memory of the launch, and never in the order in which
// threads arrive. KernelChoice::fastest allows any algorithm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/libraries/cublaslt.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/matmul.hpp>

namespace replicator::detail::cuda::cublaslt {

// NVIDIA's advice for Hopper. Smaller GPUs need less.
inline constexpr std::size_t most_workspace = std::size_t{32} << 20;
// Alignment of operands. No kernel loads more at a time, and every buffer of a program has it. The workspace needs a larger one.
inline constexpr std::uint32_t operand_alignment = 16;
inline constexpr std::size_t workspace_alignment = 256;

// Types of elements in memory, of sums, and of the factors 1 and 0 before the product and the old result.
struct Arithmetic {
  cudaDataType_t memory;
  cublasComputeType_t sum;
  cudaDataType_t scale;
};
inline std::optional<Arithmetic> arithmetic_of(DType dtype, const KernelChoice& choice) {
  switch (dtype) {
    case DType::float64: return Arithmetic{CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F};
    case DType::bfloat16: return Arithmetic{CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F};
    case DType::float32:
      return Arithmetic{CUDA_R_32F, choice.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F};
    default: return std::nullopt;
  }
}

// Matrices as cuBLASLt sees them: it reads them by columns, so row-major memory is the transpose.
struct Matrices {
  std::int64_t rows, columns;  // of one matrix in row-major memory
  std::int64_t stride;         // elements from one matrix to the next; 0 where there is only one
};

// y^T = b^T a^T. Read by columns, each matrix is its own transpose.
class MatmulProblem {
 public:
  MatmulProblem(const Arithmetic& arithmetic, const MatmulExtents& e, const Matrices& a, bool transpose_a, const Matrices& b, bool transpose_b)
      : description{&cublasLtMatmulDescCreate, arithmetic.sum, arithmetic.scale},
        a{layout(arithmetic, a, e.batch)},
        b{layout(arithmetic, b, e.batch)},
        y{layout(arithmetic, {e.rows, e.columns, e.rows * e.columns}, e.batch)} {
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  }

  // Empty where cuBLASLt has no algorithm.
  std::optional<cublasLtMatmulHeuristicResult_t> choose_algorithm(const KernelChoice& choice) const {
    const Preference preference{&cublasLtMatmulPreferenceCreate};
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      require(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(most_workspace));
    for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(attribute, operand_alignment);
    if (!choice.fastest)
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const auto status =
        cublasLtMatmulAlgoGetHeuristic(handle(), description.get(), b.get(), a.get(), y.get(), y.get(), preference.get(), 1, &found, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0)) return std::nullopt;
    require(status, "cublasLtMatmulAlgoGetHeuristic");
    if (found.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return found;
  }

  Description description;
  MatrixLayout a, b, y;

 private:
  static MatrixLayout layout(const Arithmetic& arithmetic, const Matrices& m, std::int64_t batch) {
    MatrixLayout result{&cublasLtMatrixLayoutCreate, arithmetic.memory, static_cast<std::uint64_t>(m.columns), static_cast<std::uint64_t>(m.rows),
                        m.columns};
    const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
      require(cublasLtMatrixLayoutSetAttribute(result.get(), attribute, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.stride);
    return result;
  }
  void set(cublasLtMatmulDescAttributes_t attribute, cublasOperation_t value) {
    require(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
};

class MatmulExecutable final : public Executable {
 public:
  MatmulExecutable(MatmulProblem problem, const cublasLtMatmulHeuristicResult_t& by, bool doubles)
      : problem_{std::move(problem)}, by_{by}, doubles_{doubles} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
    if (by_.workspaceSize > 0) scratch_bytes = by_.workspaceSize + workspace_alignment;
  }
  void run(const Launch& launch) const override {
    if (doubles_) multiply<double>(launch);
    else multiply<float>(launch);
  }

 private:
  template <class Scalar>
  void multiply(const Launch& launch) const {
    const Scalar one = 1, zero = 0;
    const auto beyond = reinterpret_cast<std::uintptr_t>(launch.scratch) % workspace_alignment;
    std::byte* const workspace = by_.workspaceSize > 0 ? launch.scratch + (workspace_alignment - beyond) : nullptr;
    require(cublasLtMatmul(handle(), problem_.description.get(), &one, launch.inputs[1], problem_.b.get(), launch.inputs[0], problem_.a.get(), &zero,
                           launch.outputs[0], problem_.y.get(), launch.outputs[0], problem_.y.get(), &by_.algo, workspace, by_.workspaceSize,
                           stream_of(launch.stream)),
            "cublasLtMatmul");
  }

  MatmulProblem problem_;
  cublasLtMatmulHeuristicResult_t by_;
  bool doubles_;
};

// Null for types and sizes that cuBLASLt does not take. Null also where matrices are repeated, unless one is repeated for all.
inline std::unique_ptr<Executable> make_matmul(const KernelRequest& request) {
  const auto& op = *request.operation.get<Matmul>();
  const DType dtype = request.outputs[0].dtype;
  const auto arithmetic = arithmetic_of(dtype, request.choice);
  if (!arithmetic) return nullptr;
  const auto e = matmul_extents(op, request.inputs[0].shape, request.inputs[1].shape);
  const auto batch = matmul_batch(op, request.inputs[0].shape, request.inputs[1].shape);
  for (const auto extent : {e.batch, e.rows, e.columns, e.depth})
    if (extent < 1 || extent > std::numeric_limits<int>::max()) return nullptr;
  const MatmulBatch::Pair step = e.batch > 1 ? batch.of(1) : MatmulBatch::Pair{};
  for (std::int64_t n = 0; n < e.batch; ++n)
    if (const auto at = batch.of(n); at.a != n * step.a || at.b != n * step.b) return nullptr;
  const auto matrices = [](std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t step_of) {
    return Matrices{transposed ? columns : rows, transposed ? rows : columns, step_of * rows * columns};
  };
  MatmulProblem problem{*arithmetic, e, matrices(e.rows, e.depth, op.transpose_a, step.a), op.transpose_a,
                        matrices(e.depth, e.columns, op.transpose_b, step.b), op.transpose_b};
  const auto by = problem.choose_algorithm(request.choice);
  if (!by) return nullptr;
  return std::make_unique<MatmulExecutable>(std::move(problem), *by, dtype == DType::float64);
}
inline constexpr Kernel matmul_kernel{"cuBLASLt", &make_matmul};
inline const bool matmul_registered = register_kernel<Matmul>(DeviceKind::cuda, KernelTier::library, &matmul_kernel);

}  // namespace replicator::detail::cuda::cublaslt
