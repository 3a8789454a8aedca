// SPDX-License-Identifier: Apache-2.0
// The part of cuDNN's pooling that the kernels use, on the host, by the definitions of NVIDIA's reference in double
// precision. A result depends on one window, or on all windows that hold an element. It refuses tensors that do not
// belong together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

enum cudnnPoolingMode_t {
  CUDNN_POOLING_MAX,
  CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
  CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
  CUDNN_POOLING_MAX_DETERMINISTIC
};
struct cudnnPoolingStruct {
  cudnnPoolingMode_t mode;
  cudnnNanPropagation_t nan;
  std::int64_t window[2], padding[2], stride[2];
};
using cudnnPoolingDescriptor_t = cudnnPoolingStruct*;

namespace on_host {

// The last pooling, forward or backward, that was asked for.
struct Pooling {
  cudnnPoolingStruct pooling;
  cudnnTensorStruct x, y;
  bool backward = false;
};
inline Pooling pooled;
inline int refused_poolings = -1;  // of images of this type, a cudnnDataType_t

inline double number(const cudnnTensorStruct& t, const void* data, std::int64_t at) {
  return t.type == CUDNN_DATA_DOUBLE ? static_cast<const double*>(data)[at] : static_cast<double>(read(&t, data, at));
}
// alpha * value + beta * what is there, which is not read where beta is 0. Both factors are of double for tensors of double, else of float.
inline void blend(const cudnnTensorStruct& t, void* data, std::int64_t at, const void* alpha, const void* beta, double value) {
  const auto factor = [&](const void* f) { return t.type == CUDNN_DATA_DOUBLE ? *static_cast<const double*>(f) : static_cast<double>(*static_cast<const float*>(f)); };
  value *= factor(alpha);
  if (factor(beta) != 0) value += factor(beta) * number(t, data, at);
  if (t.type == CUDNN_DATA_DOUBLE) static_cast<double*>(data)[at] = value;
  else write(&t, data, at, static_cast<float>(value));
}

// Calls f(where in y, where in x the elements of its window lie) for all of y.
template <class F>
void for_each_window(const cudnnPoolingStruct& p, const cudnnTensorStruct& x, const cudnnTensorStruct& y, F f) {
  const auto at = [](const cudnnTensorStruct& t, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    return n * t.strides[0] + c * t.strides[1] + h * t.strides[2] + w * t.strides[3];
  };
  std::vector<std::int64_t> inside;
  for (std::int64_t n = 0; n < y.extents[0]; ++n)
    for (std::int64_t c = 0; c < y.extents[1]; ++c)
      for (std::int64_t h = 0; h < y.extents[2]; ++h)
        for (std::int64_t w = 0; w < y.extents[3]; ++w) {
          inside.clear();
          for (std::int64_t i = 0; i < p.window[0]; ++i)
            for (std::int64_t j = 0; j < p.window[1]; ++j) {
              const std::int64_t row = h * p.stride[0] - p.padding[0] + i, column = w * p.stride[1] - p.padding[1] + j;
              if (row >= 0 && row < x.extents[2] && column >= 0 && column < x.extents[3]) inside.push_back(at(x, n, c, row, column));
            }
          f(at(y, n, c, h, w), inside);
        }
}

inline bool is_maximum(cudnnPoolingMode_t mode) { return mode == CUDNN_POOLING_MAX || mode == CUDNN_POOLING_MAX_DETERMINISTIC; }
inline double divisor(const cudnnPoolingStruct& p, const std::vector<std::int64_t>& inside) {
  return p.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING ? static_cast<double>(p.window[0] * p.window[1]) : static_cast<double>(inside.size());
}

inline bool same_tensor(const cudnnTensorStruct& a, const cudnnTensorStruct& b) {
  return a.type == b.type && std::equal(a.extents, a.extents + 4, b.extents) && std::equal(a.strides, a.strides + 4, b.strides);
}
// As the reference says of output extents; a larger y would have windows of nothing but padding.
inline bool belong_together(const cudnnPoolingStruct& p, const cudnnTensorStruct& x, const cudnnTensorStruct& y) {
  for (int i = 0; i < 2; ++i)
    if (y.extents[i + 2] != 1 + (x.extents[i + 2] + 2 * p.padding[i] - p.window[i]) / p.stride[i]) return false;
  return x.type == y.type && x.format == y.format && x.extents[0] == y.extents[0] && x.extents[1] == y.extents[1];
}

}  // namespace on_host

inline cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* p) { return on_host::make(p); }
inline cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t p) { return on_host::drop(p); }
inline cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t p, cudnnPoolingMode_t mode, cudnnNanPropagation_t nan, int window_h, int window_w,
                                                 int padding_h, int padding_w, int stride_h, int stride_w) {
  return *p = {mode, nan, {window_h, window_w}, {padding_h, padding_w}, {stride_h, stride_w}}, CUDNN_STATUS_SUCCESS;
}

inline cudnnStatus_t cudnnPoolingForward(cudnnHandle_t h, cudnnPoolingDescriptor_t p, const void* alpha, cudnnTensorDescriptor_t x, const void* x_data,
                                         const void* beta, cudnnTensorDescriptor_t y, void* y_data) {
  if (!on_host::belong_together(*p, *x, *y)) return CUDNN_STATUS_BAD_PARAM;
  if (on_host::refused_poolings == x->type) return CUDNN_STATUS_NOT_SUPPORTED;
  on_host::pooled = {*p, *x, *y, false};
  on_host::give(h->stream, [=] {
    on_host::for_each_window(*p, *x, *y, [&](std::int64_t to, const std::vector<std::int64_t>& inside) {
      double sum = 0, maximum = -std::numeric_limits<double>::infinity();
      bool nan = false;
      for (const auto from : inside) {
        const double value = on_host::number(*x, x_data, from);
        nan = nan || std::isnan(value);
        sum += value;
        maximum = std::fmax(maximum, value);
      }
      if (nan && p->nan == CUDNN_PROPAGATE_NAN) maximum = std::numeric_limits<double>::quiet_NaN();
      on_host::blend(*y, y_data, to, alpha, beta, on_host::is_maximum(p->mode) ? maximum : sum / on_host::divisor(*p, inside));
    });
  });
  return CUDNN_STATUS_SUCCESS;
}

// Of averages, which need neither x nor y.
inline cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t h, cudnnPoolingDescriptor_t p, const void* alpha, cudnnTensorDescriptor_t y, const void*,
                                          cudnnTensorDescriptor_t dy, const void* dy_data, cudnnTensorDescriptor_t x, const void*, const void* beta,
                                          cudnnTensorDescriptor_t dx, void* dx_data) {
  if (on_host::is_maximum(p->mode)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!on_host::same_tensor(*y, *dy) || !on_host::same_tensor(*x, *dx) || !on_host::belong_together(*p, *dx, *dy)) return CUDNN_STATUS_BAD_PARAM;
  on_host::pooled = {*p, *dx, *dy, true};
  on_host::give(h->stream, [=] {
    std::vector<double> sums(static_cast<std::size_t>(dx->extents[0] * dx->extents[1] * dx->extents[2] * dx->extents[3]));
    on_host::for_each_window(*p, *dx, *dy, [&](std::int64_t from, const std::vector<std::int64_t>& inside) {
      for (const auto to : inside) sums[static_cast<std::size_t>(to)] += on_host::number(*dy, dy_data, from) / on_host::divisor(*p, inside);
    });
    for (std::size_t i = 0; i < sums.size(); ++i) on_host::blend(*dx, dx_data, static_cast<std::int64_t>(i), alpha, beta, sums[i]);
  });
  return CUDNN_STATUS_SUCCESS;
}
