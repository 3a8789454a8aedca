// SPDX-License-Identifier: Apache-2.0
// The reference kernel of matmul on GPUs, by tiles in shared memory. Each element adds its terms in ascending order with one
// rounding per term, whatever the tiles. bfloat16 is computed in float and rounded at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/matmul.hpp>

namespace replicator::detail::cuda {

// Strides of op(a) or op(b) in elements. The matrix may be transposed.
struct MatrixStrides {
  std::int64_t row, column;
};

inline constexpr int matmul_tile = 64;   // rows and columns of y per block of threads
inline constexpr int matmul_depth = 16;  // terms per turn
inline constexpr int matmul_side = 16;   // threads per side; each has 4 x 4 elements of y

__host__ __device__ inline std::int64_t matmul_tiles(std::int64_t extent) { return (extent + matmul_tile - 1) / matmul_tile; }

// Copies rows x columns elements of a matrix to shared memory, from (row, column) on. Elements beyond its border are zero.
template <int rows, int columns, class T, class Stored>
__device__ void bring_tile(T (&tile)[rows][columns + 1], const Stored* matrix, MatrixStrides strides, std::int64_t row, std::int64_t column,
                           std::int64_t end_row, std::int64_t end_column) {
  for (int i = threadIdx.x; i < rows * columns; i += matmul_side * matmul_side) {
    // Neighbouring threads read neighbours in memory.
    const int r = strides.column == 1 ? i / columns : i % rows;
    const int c = strides.column == 1 ? i % columns : i / rows;
    const bool inside = row + r < end_row && column + c < end_column;
    tile[r][c] = inside ? value_of(matrix[(row + r) * strides.row + (column + c) * strides.column]) : T(0);
  }
}

// The matrices of a and b that make matrix n of y: MatmulBatch::of on the device.
__device__ inline MatmulBatch::Pair matrices_of(const MatmulBatch& batch, std::int64_t n) {
  MatmulBatch::Pair result{0, 0};
  for (std::size_t axis = batch.rank; axis-- > 0; n /= batch.extents[axis]) {
    result.a += n % batch.extents[axis] * batch.a[axis];
    result.b += n % batch.extents[axis] * batch.b[axis];
  }
  return result;
}

template <class Stored>
__global__ void multiply_matrices(MatmulExtents e, MatmulBatch batch, const Stored* a, MatrixStrides as, const Stored* b, MatrixStrides bs,
                                  Stored* y) {
  using T = compute_of<Stored>;
  constexpr int each = matmul_tile / matmul_side;
  __shared__ T left[matmul_tile][matmul_depth + 1];
  __shared__ T right[matmul_depth][matmul_tile + 1];
  const std::int64_t down = matmul_tiles(e.rows), across = matmul_tiles(e.columns);
  const int own_row = threadIdx.x / matmul_side, own_column = threadIdx.x % matmul_side;
  for (std::int64_t unit = blockIdx.x; unit < e.batch * down * across; unit += gridDim.x) {
    const std::int64_t n = unit / across / down, row = unit / across % down * matmul_tile, column = unit % across * matmul_tile;
    T sums[each][each] = {};
    const auto matrix = matrices_of(batch, n);
    for (std::int64_t k = 0; k < e.depth; k += matmul_depth) {
      bring_tile<matmul_tile, matmul_depth>(left, a + matrix.a * e.rows * e.depth, as, row, k, e.rows, e.depth);
      bring_tile<matmul_depth, matmul_tile>(right, b + matrix.b * e.depth * e.columns, bs, k, column, e.depth, e.columns);
      __syncthreads();
      for (int d = 0; d < matmul_depth && k + d < e.depth; ++d)
        for (int i = 0; i < each; ++i)
          for (int j = 0; j < each; ++j)
            sums[i][j] = fused_multiply_add(left[own_row + i * matmul_side][d], right[d][own_column + j * matmul_side], sums[i][j]);
      __syncthreads();
    }
    for (int i = 0; i < each; ++i)
      for (int j = 0; j < each; ++j) {
        const std::int64_t r = row + own_row + i * matmul_side, c = column + own_column + j * matmul_side;
        if (r < e.rows && c < e.columns) y[(n * e.rows + r) * e.columns + c] = stored<Stored>(sums[i][j]);
      }
  }
}

template <class Stored>
class MatmulExecutable final : public Executable {
 public:
  MatmulExecutable(const Matmul& op, const MatmulExtents& extents, const MatmulBatch& batch)
      : extents_{extents},
        batch_{batch},
        a_{strides_of(extents.rows, extents.depth, op.transpose_a)},
        b_{strides_of(extents.depth, extents.columns, op.transpose_b)} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const std::int64_t units = extents_.batch * matmul_tiles(extents_.rows) * matmul_tiles(extents_.columns);
    if (units == 0) return;
    multiply_matrices<Stored><<<blocks_for(units, 1), matmul_side * matmul_side, 0, stream_of(launch.stream)>>>(
        extents_, batch_, reinterpret_cast<const Stored*>(launch.inputs[0]), a_, reinterpret_cast<const Stored*>(launch.inputs[1]), b_,
        reinterpret_cast<Stored*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  static MatrixStrides strides_of(std::int64_t rows, std::int64_t columns, bool transposed) {
    return transposed ? MatrixStrides{1, rows} : MatrixStrides{columns, 1};
  }

  MatmulExtents extents_;
  MatmulBatch batch_;
  MatrixStrides a_, b_;
};

inline std::unique_ptr<Executable> make_matmul(const KernelRequest& request) {
  const auto& op = *request.operation.get<Matmul>();
  const auto extents = matmul_extents(op, request.inputs[0].shape, request.inputs[1].shape);
  const auto batch = matmul_batch(op, request.inputs[0].shape, request.inputs[1].shape);
  switch (request.outputs[0].dtype) {
    case DType::float32: return std::make_unique<MatmulExecutable<float>>(op, extents, batch);
    case DType::float64: return std::make_unique<MatmulExecutable<double>>(op, extents, batch);
    case DType::int32: return std::make_unique<MatmulExecutable<std::int32_t>>(op, extents, batch);
    case DType::int64: return std::make_unique<MatmulExecutable<std::int64_t>>(op, extents, batch);
    case DType::bfloat16: return std::make_unique<MatmulExecutable<Bfloat16Word>>(op, extents, batch);
    default: return nullptr;
  }
}
inline constexpr Kernel matmul_kernel{"cuda tiles", &make_matmul};
inline const bool matmul_registered = register_kernel<Matmul>(DeviceKind::cuda, KernelTier::reference, &matmul_kernel);

}  // namespace replicator::detail::cuda
