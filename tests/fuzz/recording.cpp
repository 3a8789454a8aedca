// SPDX-License-Identifier: Apache-2.0
// covers: engine/replay/recording.hpp
#include <replicator/engine/replay/recording.hpp>

#include "metadata.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  static File file;
  const auto [metadata, tensors] = metadata_of(input);
  file.write(bytes_of(safetensors_file(tensors, metadata)));
  documented<DataError>(file.path(), [&] {
    const auto recording = load_recording(file.path());
    require(recording.replica >= 0 && recording.replica < recording.replicas && !recording.steps.empty(), "a replica that does not exist");
    std::size_t arrays = 0;
    for (std::size_t i = 0; i < recording.steps.size(); ++i) {
      const auto& step = recording.steps[i];
      arrays += step.inputs.size() + step.collectives.size() + step.results.size() + step.all_results.size() + step.before.size() +
                step.after.size();
      static_cast<void>(recording.after(i, "w"));
    }
    require(arrays == tensors.size(), "tensors that belong to no step");
  });
}

std::vector<std::string> seeds() {
  const std::string head =
      "format=replicator recording "
      "1\nreplica=1\nreplicas=2\nseed=18446744073709551615\nlogical_devices=1\nthreads_per_device=1\ndevice_kind=cpu\n"
      "instruction_set=avx512\nkernel_library=oneDNN\nprogram=a\n";
  return {
      head + "steps=3 4 4.1\n+step3/input0\n+step3/collective0\n+step4/result0\n+step4/all_results0\n+step4.1/before/w\n+step4.1/after/w\n",
      head + "steps=0\nerror 0=why\n", "format=x\n"};
}

}  // namespace replicator::fuzz
