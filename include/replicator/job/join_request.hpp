// SPDX-License-Identifier: Apache-2.0
// The first message of a process that connects to process 0: job name, world size, rank, pid and host, nonce, life, epochs.
#pragma once

#include <cstdint>
#include <replicator/core/printable.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/wire/frame.hpp>
#include <string>

namespace replicator::detail::transport::detail {

// The description that a process sends of itself.
struct JoinRequest {
  std::string job_name;
  std::uint64_t world_size = 0;
  std::uint64_t rank = 0;
  ProcessInfo info;
  Bytes nonce;             // empty where the process has no job token
  std::uint64_t life = 0;  // how often processes of this rank were admitted to the running job
  Bytes epochs = {};       // in a regroup: what the process knows of them, see Epochs
  // Special value of `life`: the sender is the first process of a running job, and reports that the job runs.
  static constexpr std::uint64_t running_job = ~std::uint64_t{0};

  void write(FrameWriter& frame) const {
    frame.text(job_name)
        .number(world_size)
        .number(rank)
        .number(static_cast<std::uint64_t>(info.pid))
        .text(info.host)
        .blob(nonce)
        .number(life)
        .blob(epochs);
  }
  // Throws CommunicationError where the fields are cut short.
  static JoinRequest read(FrameReader& fields) {
    JoinRequest result;
    result.job_name = fields.text();
    result.world_size = fields.number();
    result.rank = fields.number();
    result.info.pid = static_cast<std::int64_t>(fields.number());
    result.info.host = printable(fields.text());
    result.nonce = fields.blob();
    result.life = fields.number();
    result.epochs = fields.blob();
    return result;
  }
};

}  // namespace replicator::detail::transport::detail
