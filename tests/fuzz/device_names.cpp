// SPDX-License-Identifier: Apache-2.0
// covers: replicate/parse_devices.hpp core/parse.hpp
#include <replicator/replicate/parse_devices.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  const std::string text{text_of(input)};
  documented<BuildError>("--devices", [&] {
    const auto devices = parse_devices(text);
    require(!devices.empty() && static_cast<std::int64_t>(devices.size()) <= detail::most_devices, "no devices, or too many");
    std::string names;
    for (const auto& device : devices)
      if (require(device.index >= 0 && device.part >= 0, "a device that cannot be"); device.part == 0)
        names += (names.empty() ? "" : ",") + device.text();
    static_cast<void>(parse_devices(names));
#ifdef REPLICATOR_FUZZ_PLANT
    // The planted bug: a machine that has seven GPUs at most, the last of which is cut in parts.
    const std::vector<int> memory_of_gpu(7);
    if (devices.back().part > 0 && memory_of_gpu.data()[devices.back().index] != 0) found("planted");
#endif
  });
}

std::vector<std::string> seeds() { return {"cpu:0", "cpu:0-3", "cuda:0,cuda:1", "cuda:0x4", "cpu:7,cuda:2x2"}; }

}  // namespace replicator::fuzz
