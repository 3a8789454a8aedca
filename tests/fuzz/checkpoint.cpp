// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose check sums are right: what their metadata may say.
// covers: engine/state/checkpoint.hpp
#include <replicator/engine/state/checkpoint.hpp>

#include "metadata.hpp"

namespace replicator::fuzz {

void one(Bytes input) {
  static File file;
  auto [metadata, tensors] = metadata_of(input);
  std::vector<io::NamedTensor> named;
  static const std::vector<std::byte> zeros(64);
  for (const auto& [name, type] : tensors) named.push_back({name, type, zeros.data()});
  if (metadata["sha256"].empty()) metadata["sha256"] = detail::checksum(metadata, named);
  file.write(bytes_of(safetensors_file(tensors, metadata)));
  documented<DataError>(file.path(), [&] {
    const auto read = read_checkpoint(file.path());
    require(read.next_ordinal >= 0, "a negative number of steps");
    for (const auto& [ordinal, step] : read.steps) require(ordinal >= 0, "a negative ordinal");
    for (const auto& [name, variable] : read.variables)
      for (const int step : variable.steps) require(step >= 0, "a negative step");
    static_cast<void>(read.total());
  });
}

std::vector<std::string> seeds() {
  const std::string head = "format=replicator checkpoint 1\nnext=2\nexperiment seed=7\n";
  return {head + "step 0=12 3\nstep 1=5 1 finished\nvariable w=mirrored 0 1\n+w\n", head + "variable s=replica_local 1\n+s\n",
          head + "sha256=0\n", "format=x\n"};
}

}  // namespace replicator::fuzz
