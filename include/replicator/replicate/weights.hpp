// SPDX-License-Identifier: Apache-2.0
// Loads and saves the variables of a Replicator as safetensors files.
// <replicator/replicator.hpp>, or weights_file.hpp, brings the code.
#pragma once

#include <source_location>
#include <string>

#include <replicator/replicate/replicator.hpp>

namespace replicator {

struct LoadOptions {
  bool strict = true;      // false: variables that the file lacks keep their values, and tensors without a variable are ignored
  std::string scope = {};  // only variables below this scope ("classifier"); the file has their names without it
};
struct SaveOptions {
  std::string scope = {};  // as in LoadOptions
  // Saves the moving average instead of the variable where nn::averaged keeps one, under the variable's own name. A line on stderr
  // says where there is none at all.
  bool averages = false;
};

// Sets every variable, on all replicas, to the tensor of the same name in a safetensors file. A state_dict of PyTorch can be
// saved as such a file. rp::models use torchvision's names and layouts: convolutions are [out, in, height, width].
//
// - Variables of optimizers (w/momentum of w) keep their values.
// - A *.num_batches_tracked may be missing in the file: PyTorch before 0.4.1 saved none.
// - Call it after replicate(), which declares the variables. In a job every process calls it with the same file.
//
// Throws DataError, before any variable is set, for a file that cannot be read. Also throws one DataError that lists
// all names that are missing, unexpected or of another type, and for a file without a tensor for any of the variables,
// strict or not. Throws BuildError if no variable lies below the scope, and before replicate().
template <class = void>
void load_weights(Replicator& repl, const std::string& path, const LoadOptions& options = {},
                  std::source_location where = std::source_location::current());

// Writes the same variables. Replica-local ones, such as the running statistics of batch norm, are those of this host's
// first replica. **So the file lacks the weights that other replicas have trained for themselves (local_variables)**; a
// line on stderr says so. A checkpoint keeps those of all replicas.
// One process of a job is enough: process 0 has replica 0. Throws DataError when the file cannot be written, and
// BuildError as load_weights does.
template <class = void>
void save_weights(const Replicator& repl, const std::string& path, const SaveOptions& options = {});

}  // namespace replicator
