// SPDX-License-Identifier: Apache-2.0
// The part of cuDNN that the kernels use, on the host: convolutions by their definition, and algorithm rankings that a
// test may set. Pooling: cudnn_pooling.h; graphs: cudnn_graph.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

enum cudnnStatus_t {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED = 2004,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
  CUDNN_STATUS_INTERNAL_ERROR = 4000,
  CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED = 4001
};
#define CUDNN_STATUS_CATEGORY(status) (static_cast<int>(status) / 1000 * 1000)
enum cudnnDataType_t {
  CUDNN_DATA_FLOAT,
  CUDNN_DATA_DOUBLE,
  CUDNN_DATA_BFLOAT16
};
enum cudnnTensorFormat_t {
  CUDNN_TENSOR_NCHW,
  CUDNN_TENSOR_NHWC
};
enum cudnnMathType_t {
  CUDNN_DEFAULT_MATH,
  CUDNN_TENSOR_OP_MATH,
  CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
  CUDNN_FMA_MATH
};
enum cudnnNanPropagation_t {
  CUDNN_NOT_PROPAGATE_NAN,
  CUDNN_PROPAGATE_NAN
};
enum cudnnDeterminism_t {
  CUDNN_NON_DETERMINISTIC,
  CUDNN_DETERMINISTIC
};
enum cudnnConvolutionMode_t {
  CUDNN_CONVOLUTION,
  CUDNN_CROSS_CORRELATION
};
enum cudnnConvolutionFwdAlgo_t {
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
  CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
  CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD = 6
};
enum cudnnConvolutionBwdDataAlgo_t {
  CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
  CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
};
enum cudnnConvolutionBwdFilterAlgo_t {
  CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
  CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
};

// Of images and of filters: extents and strides in elements of N, C, H, W.
struct cudnnTensorStruct {
  std::int64_t extents[4], strides[4];
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
};
struct cudnnConvolutionStruct {
  std::int64_t padding[2], stride[2], dilation[2], groups = 1;
  cudnnMathType_t arithmetic = CUDNN_DEFAULT_MATH;
};
struct cudnnContext {
  cudaStream_t stream = nullptr;
};
using cudnnHandle_t = cudnnContext*;
using cudnnTensorDescriptor_t = cudnnTensorStruct*;
struct cudnnFilterStruct : cudnnTensorStruct {};
using cudnnFilterDescriptor_t = cudnnFilterStruct*;
using cudnnConvolutionDescriptor_t = cudnnConvolutionStruct*;

template <class Algorithm>
struct CudnnPerformance {
  Algorithm algo;
  cudnnStatus_t status;
  float time;
  std::size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
};
using cudnnConvolutionFwdAlgoPerf_t = CudnnPerformance<cudnnConvolutionFwdAlgo_t>;
using cudnnConvolutionBwdDataAlgoPerf_t = CudnnPerformance<cudnnConvolutionBwdDataAlgo_t>;
using cudnnConvolutionBwdFilterAlgoPerf_t = CudnnPerformance<cudnnConvolutionBwdFilterAlgo_t>;

namespace on_host {

// What is ranked, and by which of them the last convolution was computed.
template <class Algorithm>
struct Ranking {
  std::vector<CudnnPerformance<Algorithm>> algorithms;
  bool nhwc = true;  // else only NCHW is taken
  cudnnStatus_t refusal = CUDNN_STATUS_NOT_SUPPORTED;
  std::size_t workspace = 1024;
  Algorithm last{};
};
inline Ranking<cudnnConvolutionFwdAlgo_t> forward{
    {{CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_STATUS_SUCCESS, 1, 0, CUDNN_DETERMINISTIC, CUDNN_DEFAULT_MATH},
     {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_STATUS_SUCCESS, 2, 0, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH}}};
inline Ranking<cudnnConvolutionBwdDataAlgo_t> to_data{
    {{CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_STATUS_SUCCESS, 1, 0, CUDNN_NON_DETERMINISTIC, CUDNN_DEFAULT_MATH},
     {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_STATUS_SUCCESS, 2, 0, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH}}};
inline Ranking<cudnnConvolutionBwdFilterAlgo_t> to_weights{
    {{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_STATUS_SUCCESS, 1, 0, CUDNN_NON_DETERMINISTIC, CUDNN_DEFAULT_MATH},
     {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_STATUS_SUCCESS, 2, 0, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH}}};

template <class Algorithm>
cudnnStatus_t rank(const Ranking<Algorithm>& by, const cudnnTensorStruct* x, const cudnnTensorStruct* w, const cudnnTensorStruct* y, int most, int* count,
                   CudnnPerformance<Algorithm>* ranked) {
  *count = 0;
  if (x->format != w->format || x->format != y->format || (x->format == CUDNN_TENSOR_NHWC && !by.nhwc)) return by.refusal;
  for (const auto& algorithm : by.algorithms)
    if (*count < most) ranked[(*count)++] = algorithm;
  return CUDNN_STATUS_SUCCESS;
}

inline float read(const cudnnTensorStruct* t, const void* data, std::int64_t at) {
  if (t->type == CUDNN_DATA_FLOAT) return static_cast<const float*>(data)[at];
  const std::uint32_t bits = static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(data)[at]) << 16;
  return __uint_as_float(bits);
}
inline void write(const cudnnTensorStruct* t, void* data, std::int64_t at, float value) {
  if (t->type == CUDNN_DATA_FLOAT) {
    static_cast<float*>(data)[at] = value;
  } else {
    const std::uint32_t bits = __float_as_uint(value);
    static_cast<std::uint16_t*>(data)[at] = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

// Calls f(element of x, of w, of y) for all products.
template <class F>
void for_each_product(const cudnnTensorStruct* x, const cudnnTensorStruct* w, const cudnnTensorStruct* y, const cudnnConvolutionStruct* c, F f) {
  const std::int64_t outputs = w->extents[0] / c->groups;
  for (std::int64_t n = 0; n < y->extents[0]; ++n)
    for (std::int64_t k = 0; k < w->extents[0]; ++k)
      for (std::int64_t p = 0; p < y->extents[2]; ++p)
        for (std::int64_t q = 0; q < y->extents[3]; ++q)
          for (std::int64_t i = 0; i < w->extents[1]; ++i)
            for (std::int64_t r = 0; r < w->extents[2]; ++r)
              for (std::int64_t s = 0; s < w->extents[3]; ++s) {
                const std::int64_t row = p * c->stride[0] + r * c->dilation[0] - c->padding[0], column = q * c->stride[1] + s * c->dilation[1] - c->padding[1];
                if (row < 0 || row >= x->extents[2] || column < 0 || column >= x->extents[3]) continue;
                const std::int64_t channel = k / outputs * w->extents[1] + i;
                f(n * x->strides[0] + channel * x->strides[1] + row * x->strides[2] + column * x->strides[3],
                  k * w->strides[0] + i * w->strides[1] + r * w->strides[2] + s * w->strides[3],
                  n * y->strides[0] + k * y->strides[1] + p * y->strides[2] + q * y->strides[3]);
              }
}

// out, which is one of the three, from the two others. The descriptors outlive what is captured.
inline void convolve(const cudnnTensorStruct* x, const void* x_data, const cudnnTensorStruct* w, const void* w_data, const cudnnTensorStruct* y,
                     const void* y_data, const cudnnConvolutionStruct* c, const cudnnTensorStruct* out, void* data, void* workspace,
                     std::size_t bytes) {
  std::memset(workspace, 0x5A, bytes);
  std::int64_t elements = 1;
  for (const auto extent : out->extents) elements *= extent;
  std::vector<float> sums(static_cast<std::size_t>(elements));
  for_each_product(x, w, y, c, [&](std::int64_t a, std::int64_t b, std::int64_t d) {
    if (out == y) sums[static_cast<std::size_t>(d)] += read(x, x_data, a) * read(w, w_data, b);
    else if (out == x) sums[static_cast<std::size_t>(a)] += read(y, y_data, d) * read(w, w_data, b);
    else sums[static_cast<std::size_t>(b)] += read(x, x_data, a) * read(y, y_data, d);
  });
  for (std::int64_t i = 0; i < elements; ++i) write(out, data, i, sums[static_cast<std::size_t>(i)]);
}

inline cudnnStatus_t describe(cudnnTensorStruct* t, cudnnTensorFormat_t format, cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h,
                              std::int64_t w) {
  if (format == CUDNN_TENSOR_NCHW) *t = {{n, c, h, w}, {c * h * w, h * w, w, 1}, type, format};
  else *t = {{n, c, h, w}, {c * h * w, 1, w * c, c}, type, format};
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t make(T** made) {
  return *made = new T{}, CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t drop(T* made) {
  delete made;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace on_host

inline std::size_t cudnnGetVersion() { return 91900; }
inline const char* cudnnGetErrorString(cudnnStatus_t) { return "CUDNN_STATUS_NOT_SUPPORTED"; }
inline void cudnnGetLastErrorString(char* text, std::size_t) { *text = 0; }
inline cudnnStatus_t cudnnCreate(cudnnHandle_t* h) { return on_host::make(h); }
inline cudnnStatus_t cudnnDestroy(cudnnHandle_t h) { return on_host::drop(h); }
inline cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream) { return h->stream = stream, CUDNN_STATUS_SUCCESS; }
inline cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* t) { return on_host::make(t); }
inline cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t) { return on_host::drop(t); }
inline cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* t) { return on_host::make(t); }
inline cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t t) { return on_host::drop(t); }
inline cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* c) { return on_host::make(c); }
inline cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c) { return on_host::drop(c); }
inline cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c, int h, int w) {
  return on_host::describe(t, format, type, n, c, h, w);
}
inline cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t t, cudnnDataType_t type, cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return on_host::describe(t, format, type, k, c, h, w);
}
inline cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int u, int v, int dilation_h, int dilation_w,
                                                     cudnnConvolutionMode_t, cudnnDataType_t) {
  *d = {{pad_h, pad_w}, {u, v}, {dilation_h, dilation_w}};
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups) { return d->groups = groups, CUDNN_STATUS_SUCCESS; }
inline cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t type) {
  return d->arithmetic = type, CUDNN_STATUS_SUCCESS;
}

inline cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                                                            cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t y, int most, int* count,
                                                            cudnnConvolutionFwdAlgoPerf_t* ranked) {
  return on_host::rank(on_host::forward, x, w, y, most, count, ranked);
}
inline cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
                                                                 cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t dx, int most, int* count,
                                                                 cudnnConvolutionBwdDataAlgoPerf_t* ranked) {
  return on_host::rank(on_host::to_data, dx, w, dy, most, count, ranked);
}
inline cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
                                                                   cudnnConvolutionDescriptor_t, cudnnFilterDescriptor_t dw, int most, int* count,
                                                                   cudnnConvolutionBwdFilterAlgoPerf_t* ranked) {
  return on_host::rank(on_host::to_weights, x, dw, dy, most, count, ranked);
}
inline cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                             cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t,
                                                             std::size_t* bytes) {
  return *bytes = on_host::forward.workspace, CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
                                                                  cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t,
                                                                  cudnnConvolutionBwdDataAlgo_t, std::size_t* bytes) {
  return *bytes = on_host::to_data.workspace, CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
                                                                    cudnnConvolutionDescriptor_t, cudnnFilterDescriptor_t,
                                                                    cudnnConvolutionBwdFilterAlgo_t, std::size_t* bytes) {
  return *bytes = on_host::to_weights.workspace, CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void*, cudnnTensorDescriptor_t x, const void* x_data, cudnnFilterDescriptor_t w,
                                             const void* w_data, cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t by, void* workspace,
                                             std::size_t bytes, const void*, cudnnTensorDescriptor_t y, void* y_data) {
  on_host::forward.last = by;
  on_host::give(h->stream, [=] { on_host::convolve(x, x_data, w, w_data, y, y_data, c, y, y_data, workspace, bytes); });
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void*, cudnnFilterDescriptor_t w, const void* w_data, cudnnTensorDescriptor_t dy,
                                                  const void* dy_data, cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdDataAlgo_t by, void* workspace,
                                                  std::size_t bytes, const void*, cudnnTensorDescriptor_t dx, void* dx_data) {
  on_host::to_data.last = by;
  on_host::give(h->stream, [=] { on_host::convolve(dx, dx_data, w, w_data, dy, dy_data, c, dx, dx_data, workspace, bytes); });
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void*, cudnnTensorDescriptor_t x, const void* x_data,
                                                    cudnnTensorDescriptor_t dy, const void* dy_data, cudnnConvolutionDescriptor_t c,
                                                    cudnnConvolutionBwdFilterAlgo_t by, void* workspace, std::size_t bytes, const void*,
                                                    cudnnFilterDescriptor_t dw, void* dw_data) {
  on_host::to_weights.last = by;
  on_host::give(h->stream, [=] { on_host::convolve(x, x_data, dw, dw_data, dy, dy_data, c, dw, dw_data, workspace, bytes); });
  return CUDNN_STATUS_SUCCESS;
}

#include "cudnn_graph.h"
#include "cudnn_pooling.h"
