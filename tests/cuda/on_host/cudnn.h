// SPDX-License-Identifier: Apache-2.0
// A stand-in on the host for the part of cuDNN that is called. Here are handles, tensors, and convolutions by their definition.
// Graphs are in cudnn_graph.h, and pooling is in cudnn_pooling.h.
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
enum cudnnNanPropagation_t {
  CUDNN_NOT_PROPAGATE_NAN,
  CUDNN_PROPAGATE_NAN
};
enum cudnnConvolutionMode_t {
  CUDNN_CONVOLUTION,
  CUDNN_CROSS_CORRELATION
};

// Describes images and weights: extents and strides, in elements, of N, C, H, W.
struct cudnnTensorStruct {
  std::int64_t extents[4], strides[4];
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
};
struct cudnnConvolutionStruct {
  std::int64_t padding[2], stride[2], dilation[2], groups = 1;
};
struct cudnnContext {
  cudaStream_t stream = nullptr;
};
using cudnnHandle_t = cudnnContext*;
using cudnnTensorDescriptor_t = cudnnTensorStruct*;

namespace on_host {

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

// Computes `out`, which is one of the three tensors, from the other two.
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
inline cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c, int h, int w) {
  return on_host::describe(t, format, type, n, c, h, w);
}

#include "cudnn_graph.h"
#include "cudnn_pooling.h"
