// SPDX-License-Identifier: Apache-2.0
// The processes of a job, for programs that know them already.
#pragma once

#include <memory>
#include <utility>

namespace replicator {

namespace detail::transport {
struct ProcessEnvironment;
}

// The processes of a job as this process sees them. Made by processes_of(MPI_Comm), see job/mpi.hpp. Each World and each Replicator
// needs one of its own.
class Processes {
 public:
  // This process alone, whatever started it.
  Processes() = default;
  Processes(int rank, int size, std::shared_ptr<const detail::transport::ProcessEnvironment> environment)
      : rank_{rank}, size_{size}, environment_{std::move(environment)} {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  // How this process reaches process 0. Null for a process alone.
  const std::shared_ptr<const detail::transport::ProcessEnvironment>& environment() const { return environment_; }

 private:
  int rank_ = 0, size_ = 1;
  std::shared_ptr<const detail::transport::ProcessEnvironment> environment_;
};

}  // namespace replicator
