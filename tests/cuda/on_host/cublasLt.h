// SPDX-License-Identifier: Apache-2.0
// The part of cuBLASLt that the kernels use, on the host: products of column-major matrices by their definition.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

enum libraryPropertyType {
  MAJOR_VERSION,
  MINOR_VERSION,
  PATCH_LEVEL
};
enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cudaDataType_t {
  CUDA_R_32F,
  CUDA_R_64F,
  CUDA_R_16BF = 14
};
enum cublasComputeType_t {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC,
  CUBLAS_COMPUTE_64F,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cublasOperation_t {
  CUBLAS_OP_N,
  CUBLAS_OP_T
};
enum cublasLtReductionScheme_t {
  CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
  CUBLASLT_REDUCTION_SCHEME_MASK = 7
};
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA,
  CUBLASLT_MATMUL_DESC_TRANSB
};
enum cublasLtMatrixLayoutAttribute_t {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
};
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
};

struct cublasLtContext {};
using cublasLtHandle_t = cublasLtContext*;
struct LtDescription {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t operation[2]{CUBLAS_OP_N, CUBLAS_OP_N};
};
using cublasLtMatmulDesc_t = LtDescription*;
struct LtLayout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t leading, stride = 0;
  std::int32_t batch = 1;
};
using cublasLtMatrixLayout_t = LtLayout*;
struct LtPreference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK, alignment = 256;
};
using cublasLtMatmulPreference_t = LtPreference*;
struct cublasLtMatmulAlgo_t {
  std::uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
};

namespace on_host {

// What was asked for when the last algorithm was chosen.
inline LtPreference preferred;
inline LtDescription described;

inline double read(const LtLayout& m, const void* data, std::int64_t at) {
  if (m.type == CUDA_R_64F) return static_cast<const double*>(data)[at];
  if (m.type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  return __uint_as_float(static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(data)[at]) << 16);
}
inline void write(const LtLayout& m, void* data, std::int64_t at, double value) {
  if (m.type == CUDA_R_64F) {
    static_cast<double*>(data)[at] = value;
  } else if (m.type == CUDA_R_32F) {
    static_cast<float*>(data)[at] = static_cast<float>(value);
  } else {
    const std::uint32_t bits = __float_as_uint(static_cast<float>(value));
    static_cast<std::uint16_t*>(data)[at] = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}
// Where element (row, column) of matrix n lies, of a matrix that is transposed first.
inline std::int64_t place(const LtLayout& m, cublasOperation_t operation, std::int64_t n, std::int64_t row, std::int64_t column) {
  if (operation == CUBLAS_OP_T) std::swap(row, column);
  return n * m.stride + column * m.leading + row;
}

}  // namespace on_host

inline const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_NOT_SUPPORTED"; }
inline const char* cublasLtGetStatusString(cublasStatus_t) { return "the functionality is not supported"; }
inline cublasStatus_t cublasLtGetProperty(libraryPropertyType part, int* value) { return *value = part == MAJOR_VERSION ? 13 : 0, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) { return *h = new cublasLtContext, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete h;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType_t scale) {
  return *d = new LtDescription{compute, scale}, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute, const void* value, std::size_t) {
  std::memcpy(&d->operation[attribute == CUBLASLT_MATMUL_DESC_TRANSA ? 0 : 1], value, sizeof d->operation[0]);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* m, cudaDataType_t type, std::uint64_t rows, std::uint64_t columns,
                                                 std::int64_t leading) {
  return *m = new LtLayout{type, rows, columns, leading}, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m) {
  delete m;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t m, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                       std::size_t bytes) {
  const bool count = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  if (bytes != (count ? sizeof m->batch : sizeof m->stride)) return CUBLAS_STATUS_NOT_SUPPORTED;
  std::memcpy(count ? static_cast<void*>(&m->batch) : &m->stride, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) { return *p = new LtPreference, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attribute,
                                                           const void* value, std::size_t bytes) {
  const bool space = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (bytes != (space ? 8 : 4)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (space) std::memcpy(&p->workspace, value, bytes);
  else std::memcpy(attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? &p->reductions : &p->alignment, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t p, int,
                                                     cublasLtMatmulHeuristicResult_t* found, int* count) {
  on_host::preferred = *p;
  on_host::described = *d;
  *found = {{}, 4096, CUBLAS_STATUS_SUCCESS};
  return *count = 1, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void*, const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                     cublasLtMatrixLayout_t b_layout, const void*, const void*, cublasLtMatrixLayout_t, void* y,
                                     cublasLtMatrixLayout_t y_layout, const cublasLtMatmulAlgo_t*, void* workspace, std::size_t bytes, cudaStream_t stream) {
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  on_host::give(stream, [=] {
    std::memset(workspace, 0x5A, bytes);
    const auto rows = static_cast<std::int64_t>(y_layout->rows), columns = static_cast<std::int64_t>(y_layout->columns);
    const auto depth = static_cast<std::int64_t>(d->operation[0] == CUBLAS_OP_N ? a_layout->columns : a_layout->rows);
    for (std::int64_t n = 0; n < y_layout->batch; ++n)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < depth; ++k)
            sum += on_host::read(*a_layout, a, on_host::place(*a_layout, d->operation[0], n, i, k)) *
                   on_host::read(*b_layout, b, on_host::place(*b_layout, d->operation[1], n, k, j));
          on_host::write(*y_layout, y, on_host::place(*y_layout, CUBLAS_OP_N, n, i, j), sum);
        }
  });
  return CUBLAS_STATUS_SUCCESS;
}
