// SPDX-License-Identifier: Apache-2.0
// Fuzzes checkpoints with correct checksums: their metadata, in a file and in the hand-over between processes.
// covers: engine/state/checkpoint.hpp engine/state/snapshot.hpp io/safetensors_file.hpp
#include <replicator/engine/state/snapshot.hpp>

#include "metadata.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

namespace {

void hand_over(Bytes bytes) {
  documented<DataError>("handed", [&] {
    constexpr int replicas = 2;
    const auto handover = unpack_handover("handed", bytes, replicas);
    for (const auto& [name, variable] : handover.snapshot.variables) {
      const auto& declaration = variable.declaration;
      require(declaration.name == name, "a variable under another name");
      require(variable.value.type() == checkpointed_type(declaration.type, declaration.kind, replicas), "a value of another type");
    }
    for (const auto& [ordinal, step] : handover.steps) require(ordinal >= 0, "a negative ordinal");
    for (const auto* numbers : {&handover.snapshot.checkpoints.read, &handover.snapshot.checkpoints.declared, &handover.snapshot.checkpoints.due})
      for (const int step : *numbers) require(step >= 0, "a negative step");
    static_cast<void>(unpack_handover("handed", pack_handover(handover.snapshot, handover.steps), replicas));
  });
}

}  // namespace

void one(Bytes input) {
  static File file;
  hand_over(input);  // as it is: whatever came
  auto [metadata, tensors] = metadata_of(input);
  std::vector<io::NamedTensor> named;
  static const std::vector<std::byte> zeros(64);
  for (const auto& [name, type] : tensors) named.push_back({name, type, zeros.data()});
  if (metadata["sha256"].empty()) metadata["sha256"] = detail::checksum(metadata, named);
  const auto content = safetensors_file(tensors, metadata);
  file.write(bytes_of(content));
  hand_over(bytes_of(content));
  const bool valid = documented<DataError>(file.path(), [&] {
    const auto read = read_checkpoint(file.path());
    require(read.next_ordinal >= 0, "a negative number of steps");
    for (const auto& [ordinal, step] : read.steps) require(ordinal >= 0, "a negative ordinal");
    for (const auto& [name, variable] : read.variables)
      for (const int step : variable.steps) require(step >= 0, "a negative step");
    static_cast<void>(read.total());
  });
  require(valid == documented<DataError>("in memory", [&] { read_checkpoint("in memory", bytes_of(content)); }), "a file is read, and its bytes are not");
}

std::vector<std::string> seeds() {
  const std::string head = "format=replicator checkpoint 1\nnext=2\nexperiment seed=7\n";
  const std::string moment = "moment call=7\nmoment path=a b\nmoment read=0\nmoment declared=0 1\nmoment due=\nmoment made=0 1\nmoment step 1=5 finished\n";
  return {head + "step 0=12 3\nstep 1=5 1 finished\nvariable w=mirrored 0 1\n+w\n", head + "variable s=replica_local 1\n+s\n",
          head + "sha256=0\n", "format=x\n", head + moment + "variable w=mirrored 0 1\nmoment rank w=1\n+w\n",
          head + moment + "variable w=replica_local 0\nmoment rank w=0\n+w\n+later\n"};
}

}  // namespace replicator::fuzz
