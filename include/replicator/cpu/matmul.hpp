// SPDX-License-Identifier: Apache-2.0
// Products of matrices as plain loops: the reference, and what float64 and int32 run on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/graph/kernel.hpp>
#include <replicator/ops/matmul.hpp>

namespace replicator::cpu {

namespace detail {

// Strides of op(a) and op(b), which may be transposed: rows and columns of one matrix.
struct MatrixStrides {
  std::int64_t row = 0, column = 0;
};
inline MatrixStrides matrix_strides(std::int64_t rows, std::int64_t columns, bool transposed) {
  return transposed ? MatrixStrides{1, rows} : MatrixStrides{columns, 1};
}

// y += a b for one matrix. Each element adds its terms in ascending order. Where the rows of b are contiguous the
// columns run innermost, so that the loop vectorises; blocks of the depth keep the rows of b in the cache.
template <class T>
void multiply(const MatmulExtents& e, const T* a, MatrixStrides as, const T* b, MatrixStrides bs, T* y) {
  constexpr std::int64_t block = 64;
  std::fill(y, y + e.rows * e.columns, T{});
  for (std::int64_t k0 = 0; k0 < e.depth; k0 += block)
    for (std::int64_t i = 0; i < e.rows; ++i)
      for (std::int64_t k = k0; k < std::min(k0 + block, e.depth); ++k) {
        const T factor = a[i * as.row + k * as.column];
        const T* const from = b + k * bs.row;
        T* const to = y + i * e.columns;
        if (bs.column == 1)
          for (std::int64_t j = 0; j < e.columns; ++j) to[j] += factor * from[j];
        else
          for (std::int64_t j = 0; j < e.columns; ++j) to[j] += factor * from[j * bs.column];
      }
}

template <class T>
class MatmulLoops final : public Executable {
 public:
  MatmulLoops(const Matmul& op, const MatmulExtents& extents)
      : extents_{extents},
        a_{matrix_strides(extents.rows, extents.depth, op.transpose_a)},
        b_{matrix_strides(extents.depth, extents.columns, op.transpose_b)} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const T* a = reinterpret_cast<const T*>(launch.inputs[0]);
    const T* b = reinterpret_cast<const T*>(launch.inputs[1]);
    T* y = reinterpret_cast<T*>(launch.outputs[0]);
    for (std::int64_t n = 0; n < extents_.batch; ++n)
      multiply(extents_, a + n * extents_.rows * extents_.depth, a_, b + n * extents_.depth * extents_.columns, b_,
               y + n * extents_.rows * extents_.columns);
  }

 private:
  MatmulExtents extents_;
  MatrixStrides a_, b_;
};

inline std::unique_ptr<Executable> make_matmul_loops(const KernelRequest& request) {
  const auto& op = *request.operation.get<Matmul>();
  const auto extents = matmul_extents(op, request.inputs[0].shape, request.inputs[1].shape);
  switch (request.outputs[0].dtype) {
    case DType::float32: return std::make_unique<MatmulLoops<float>>(op, extents);
    case DType::float64: return std::make_unique<MatmulLoops<double>>(op, extents);
    case DType::int32: return std::make_unique<MatmulLoops<std::int32_t>>(op, extents);
    default: return nullptr;
  }
}

}  // namespace detail

inline constexpr Kernel matmul_loops{"matmul loops", &detail::make_matmul_loops};
inline const bool matmul_loops_registered =
    register_kernel<Matmul>(DeviceKind::cpu, KernelTier::reference, &matmul_loops);

}  // namespace replicator::cpu
