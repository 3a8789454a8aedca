// SPDX-License-Identifier: Apache-2.0
// Times collectives of the MPI that compiles it; compare_processes does that for each.
#include <mpi.h>

#include <string>
#include <vector>

#include "timing.hpp"

namespace {

class Mpi {
 public:
  int rank() const { return of(MPI_Comm_rank); }
  int size() const { return of(MPI_Comm_size); }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  double maximum(double mine) {
    double result = 0;
    MPI_Allreduce(&mine, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return result;
  }

  void prepare(const std::string& collective, const processes::Lengths& lengths) {
    collective_ = collective;
    block_ = static_cast<int>(lengths.block);
    input_.assign(static_cast<std::size_t>(lengths.input), 0);
    output_.assign(static_cast<std::size_t>(lengths.output), 0);
  }
  // MPI_Bcast has one buffer.
  float* input() { return collective_ == "broadcast" ? output_.data() : input_.data(); }
  const float* output() const { return output_.data(); }

  void call() {
    float* const in = input_.data();
    float* const out = output_.data();
    if (collective_ == "all_reduce") MPI_Allreduce(in, out, block_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (collective_ == "reduce_scatter") MPI_Reduce_scatter_block(in, out, block_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (collective_ == "all_gather") MPI_Allgather(in, block_, MPI_FLOAT, out, block_, MPI_FLOAT, MPI_COMM_WORLD);
    if (collective_ == "all_to_all") MPI_Alltoall(in, block_, MPI_FLOAT, out, block_, MPI_FLOAT, MPI_COMM_WORLD);
    if (collective_ == "broadcast") MPI_Bcast(out, block_, MPI_FLOAT, 0, MPI_COMM_WORLD);
  }

 private:
  static int of(int (*query)(MPI_Comm, int*)) {
    int result = 0;
    query(MPI_COMM_WORLD, &result);
    return result;
  }

  std::string collective_;
  int block_ = 0;
  std::vector<float> input_, output_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Mpi mpi;
  processes::measure(mpi, processes::options_from(argc, argv));
  MPI_Finalize();
}
