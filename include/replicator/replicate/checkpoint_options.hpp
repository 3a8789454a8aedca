// SPDX-License-Identifier: Apache-2.0
// Where the state of an experiment is kept, and how often. None of it changes a bit of a result.
#pragma once

#include <cstdint>
#include <string>

namespace replicator {

struct CheckpointOptions {
  std::string folder;       // empty: nothing is kept
  std::uint64_t every = 0;  // a checkpoint after so many steps of any replicated step, see docs/checkpoints.md; 0: only Replicator::save_checkpoint
  int keep = 3;             // so many checkpoints stay in the folder
  bool resume = false;      // goes on from the newest one in the folder; where there is none, begins

  // What all processes of a job must ask for alike.
  std::string gathered() const {
    if (folder.empty()) return "none of them";
    return "--checkpoint" + (every > 0 ? " --every " + std::to_string(every) : std::string{}) + (resume ? " --resume" : "");
  }
};

}  // namespace replicator
