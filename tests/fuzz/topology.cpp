// SPDX-License-Identifier: Apache-2.0
// covers: engine/topology_file.hpp collectives/topology.hpp io/json/json_reader.hpp
#include <replicator/engine/topology_file.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  const std::string text{text_of(input)};
  documented<DataError>("a.topology", [&] {
    const auto topology = parse_topology(text, "a.topology");
    require(topology.ranks() >= 1 && topology.distance(0, topology.ranks() - 1) < static_cast<int>(topology.dimensions.size()), "no ranks");
    const auto written = replicator::detail::text_of(topology);
    std::string again;
    const bool read = documented<DataError>("", [&] { again = replicator::detail::text_of(parse_topology(written, "a.topology")); });
    require(read && again == written, "a topology that is another one, or none, when it is read again");
  });
}

std::vector<std::string> seeds() {
  return {replicator::detail::text_of(collectives::Topology{{{4, {0.5, 50000}}, {3, {20, 1200}}}, 9000}),
          replicator::detail::text_of(collectives::Topology{{{16777216, {1e-9, 1e300}}}, 1})};
}

}  // namespace replicator::fuzz
