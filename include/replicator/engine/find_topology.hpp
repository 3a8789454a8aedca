// SPDX-License-Identifier: Apache-2.0
// Finds the latency and bandwidth of the links between the devices of a job. Reads them from a file, or measures them
// and writes the file.
#pragma once

#include <string>
#include <vector>

#include <replicator/collectives/connect/measure_options.hpp>
#include <replicator/collectives/parse_link.hpp>
#include <replicator/core/error.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

// Collective: either all processes name a file or none does. Process 0 reads the file. If there is none, all processes
// measure and process 0 writes it. All use the figures of process 0, so they are equal everywhere.
// - `grid`: the number of devices of a process, then the number of processes. It is empty if processes have different
//   numbers of devices.
// - A job with one device measures, reads and writes nothing. A line on stderr says so.
//
// Throws DataError for a bad file and BuildError for a file of another job, the same on all processes.
template <class = void>
collectives::Topology find_topology(transport::Job& job, const std::string& path, const std::string& transport, const std::vector<int>& grid,
                                    const collectives::MeasureOptions& options = {});

// The topology that --link describes: its figures for links between processes, common figures for links inside a
// process. Measures nothing. `grid` as above. Throws BuildError if `link` is malformed or `grid` is empty.
inline collectives::Topology topology_of_link(const std::string& link, const std::vector<int>& grid) {
  const auto between = collectives::parse_link("--link", link);
  if (grid.empty())
    throw BuildError{"--link " + link +
                     " was given, but the processes of this job differ in their numbers of devices: name as many --devices "
                     "on every host, or leave --link out"};
  collectives::Topology topology{{}, collectives::common_reduction};
  if (grid[0] > 1) topology.dimensions.push_back({grid[0], collectives::common_host_link});
  if (grid[1] > 1) topology.dimensions.push_back({grid[1], between});
  return topology;
}

}  // namespace replicator::detail
