// SPDX-License-Identifier: Apache-2.0
// The code of find_topology.hpp: reads the topology file, or measures the links and writes it.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <replicator/collectives/connect/measure_topology.hpp>
#include <replicator/core/error.hpp>
#include <replicator/engine/find_topology.hpp>
#include <replicator/engine/topology_file.hpp>
#include <replicator/job/job.hpp>
#include <span>
#include <string>
#include <vector>

namespace replicator::detail {

// Calls `make` on process 0 and returns its text on every process. If `make` throws, all processes throw DataError with
// its message.
inline std::string made_by_first_process(transport::Job& job, const char* what, const std::function<std::string()>& make) {
  std::string mine;
  if (job.rank() == 0) {
    try {
      mine = "+" + make();
    } catch (const std::exception& error) {
      mine = std::string{"-"} + error.what();
    }
  }
  const auto all = job.exchange(std::as_bytes(std::span{mine.data(), mine.size()}), what);
  const std::string first{reinterpret_cast<const char*>(all[0].data()), all[0].size()};
  if (first.empty() || first[0] != '+') throw DataError{first.empty() ? "process 0 did not say what is in the file" : first.substr(1)};
  return first.substr(1);
}

inline std::string text_in(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return {};
  std::vector<std::byte> bytes;
  io::read_file(path, bytes);
  if (bytes.empty()) throw DataError{path + ": byte 0: topology: the file is empty; remove it to have the figures measured"};
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline collectives::Topology fitting_topology(const std::string& text, const std::string& path, const std::vector<int>& grid) {
  auto topology = parse_topology(text, path);
  collectives::Topology job;
  for (const int size : grid)
    if (size > 1) job.dimensions.push_back({size, {}});
  std::erase_if(topology.dimensions, [](const auto& dimension) { return dimension.size == 1; });
  if (topology.text() != job.text())
    throw BuildError{"--topology " + path + " is of " + topology.text() + " (devices of a process x processes), this job is " + job.text() +
                     ": name another file, which will be written, or remove this one"};
  return topology;
}

template <class>
collectives::Topology find_topology(transport::Job& job, const std::string& path, const std::string& transport, const std::vector<int>& grid,
                                    const collectives::MeasureOptions& options) {
  if (grid.empty())
    throw BuildError{"--topology " + path +
                     " was asked for, but the processes of this job differ in their numbers of devices: name as many "
                     "--devices on every host, or leave --topology out"};
  if (grid == std::vector{1, 1}) {
    std::fprintf(stderr, "replicator: --topology %s: this job has one device, so there is no link to measure, and no file is read or written\n", path.c_str());
    return {};
  }
  auto text = detail::made_by_first_process(job, "the reading of the topology", [&] { return detail::text_in(path); });
  if (text.empty()) {
    const auto measured = collectives::topology_of(collectives::measure_job(job, transport, grid[0], options), grid[0]);
    text = detail::made_by_first_process(job, "the writing of the topology", [&] {
      const auto figures = text_of(measured);
      write_topology(path, figures);
      return figures;
    });
  }
  return detail::fitting_topology(text, path, grid);
}

}  // namespace replicator::detail
