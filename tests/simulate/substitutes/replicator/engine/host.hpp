// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: what AsyncPeers asks a host.
#pragma once

#include <string>

#include <replicator/core/array.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>

namespace replicator::detail {

class Host {
 public:
  struct Declaration {
    TensorType type;
  };
  struct Variables {
    Declaration declaration(const std::string&) const { return {{DType::int64, Shape{4}}}; }
  };
  Host(const Deployment& deployment, transport::Job& job) : deployment_{deployment}, job_{job} {}
  const Deployment& deployment() const { return deployment_; }
  transport::Job& job() const { return job_; }
  Variables variables() const { return {}; }

 private:
  const Deployment& deployment_;
  transport::Job& job_;
};

}  // namespace replicator::detail
