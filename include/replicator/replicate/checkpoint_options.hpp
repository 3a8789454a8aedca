// SPDX-License-Identifier: Apache-2.0
// CheckpointOptions: the folder of the checkpoints, and how often one is written. No option changes a bit of a result.
#pragma once

#include <cstdint>
#include <string>

namespace replicator {

struct CheckpointOptions {
  std::string folder;       // empty: no checkpoints
  std::uint64_t every = 0;  // steps of any replicated step between checkpoints, see docs/checkpoints.md; 0: only Replicator::save_checkpoint writes one
  int keep = 3;             // number of the newest checkpoints that stay in the folder
  bool resume = false;      // continues from the newest checkpoint in the folder, or starts from the beginning where there is none

  // The part on which all processes of a job must agree, as text.
  std::string gathered() const {
    if (folder.empty()) return "none of them";
    return "--checkpoint" + (every > 0 ? " --every " + std::to_string(every) : std::string{}) + (resume ? " --resume" : "");
  }
};

}  // namespace replicator
