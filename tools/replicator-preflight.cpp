// SPDX-License-Identifier: Apache-2.0
// Checks the hosts of a job before it starts: reachability, program, processor, clocks, bandwidth, latency. See
// docs/hosts.md.
#include <chrono>
#include <exception>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include <replicator/collectives/connect/linked_parts.hpp>
#include <replicator/core/error.hpp>

#include "preflight.hpp"

namespace rp = replicator;

namespace {

struct Options {
  rp::tools::PreflightOptions preflight;
  rp::detail::transport::RendezvousOptions rendezvous;
  std::string topology;
  int deadline = 30;
  bool json = false;
};

void add_flags(CLI::App& app, Options& o) {
  app.add_option("--program", o.preflight.program, "File that must be the same on every host; default: this program");
  app.add_option("--devices", o.preflight.devices, "Devices of each process")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--transport", o.preflight.transport, "auto, shared_memory or ucx, as for the job")->capture_default_str();
  app.add_option("--topology", o.topology, "File for the measured links, for --topology of the job");
  app.add_option("--deadline", o.deadline, "Seconds of every wait for another process")->check(CLI::Range(1, 3600))->capture_default_str();
  app.add_option("--job-token-file", o.rendezvous.job_token_file, "As for the job");
  app.add_flag("--insecure", o.rendezvous.insecure, "As for the job");
  app.add_option("--interface", o.rendezvous.interface, "As for the job");
  app.add_flag("--json", o.json, "Process 0 writes JSON instead of a table");
}

// Returns 0 if all is well; the same on every process.
int run(Options& o) {
  rp::detail::transport::JobOptions job_options;
  job_options.connect_deadline = job_options.exchange_deadline = o.preflight.measure.deadline = std::chrono::seconds{o.deadline};
  rp::detail::transport::Job job{rp::detail::transport::find_environment(o.rendezvous), job_options};
  const auto found = rp::tools::look_around(job, o.preflight);
  const auto problems = rp::tools::problems_of(found);
  if (job.rank() == 0) {
    std::cout << (o.json ? json_of(found) : table_of(found));
    for (const auto& problem : problems) std::cerr << "replicator-preflight: " << problem << '\n';
    if (!o.json && problems.empty()) std::cout << "all is well\n";
    const auto topology = rp::detail::collectives::topology_of(found.measured, found.devices);
    if (!o.topology.empty() && !topology.dimensions.empty()) rp::detail::write_topology(o.topology, rp::detail::text_of(topology));
  }
  job.leave();
  return problems.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Checks the hosts of a job before it starts. Every process must reach every other one, and all must have the same program and "
      "instruction set. Measures how far their clocks are apart, and the latency and bandwidth of each link. Names slow links.",
      "replicator-preflight"};
  app.footer(
      "Start it as the job will be:\n"
      "  mpirun -n 4 replicator-preflight --program ./train --devices 2 --topology links.json\n"
      "  RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 replicator-preflight        (and RANK=1 on the other host)\n"
      "Exit code: 0 if all is well; 1 on every process if something is not; 2 for invalid flags.");
  add_flags(app, options);
  try {
    app.parse(argc, argv);
    return run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const rp::BuildError& error) {
    std::cerr << "replicator-preflight: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "replicator-preflight: " << error.what() << '\n';
    return 1;
  }
}
