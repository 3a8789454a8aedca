// SPDX-License-Identifier: Apache-2.0
// Support for jobs started by Slurm's srun without an MPI plugin. Slurm's variables alone say which process this is.
#pragma once

#include <cstdint>
#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/job/process_environment.hpp>
#include <string>
#include <string_view>

namespace replicator::detail::transport {

namespace detail {

// Whether this is a task of srun. A batch script has SLURM_PROCID and SLURM_NTASKS too, but is one process and no step.
inline bool started_by_srun() { return variable("SLURM_PROCID") && variable("SLURM_STEP_NUM_TASKS"); }

// Whether the variables of PMIx come from srun itself, and not from an mpirun with daemons that srun has started.
inline bool pmix_is_slurms() { return variable("PMIX_NAMESPACE").value_or("").starts_with("slurm.pmix."); }

// The first host of Slurm's shortened list: "n07" of "n[07-09,12]", "a1b3" of "a[1-2]b[3-4],c".
inline std::string first_host(std::string_view list) {
  std::string result;
  bool inside = false, taken = false;  // inside brackets; the first name in them is complete
  for (const char c : list) {
    if (c == '[' || c == ']') {
      inside = c == '[';
      taken = false;
      continue;
    }
    if (c == ',' && !inside) break;
    taken = taken || (inside && (c == ',' || c == '-'));
    if (!taken) result += c;
  }
  return result;
}

inline std::string slurm_variable(const char* name) {
  if (auto text = variable(name)) return *text;
  throw BuildError{"this process was started by srun, but the variable " + std::string{name} +
                   " is missing: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT instead"};
}

// A port that all tasks of a step agree on and that differs between concurrent steps. It lies below the ports that systems
// assign themselves.
inline std::uint16_t slurm_port(std::int64_t job, std::int64_t step) {
  constexpr std::int64_t first = 15000, ports = 15000, steps = 31;
  return static_cast<std::uint16_t>(first + (job % ports * steps + step) % ports);
}

}  // namespace detail

// This process is task SLURM_PROCID of SLURM_STEP_NUM_TASKS. Process 0 runs on the first node of SLURM_STEP_NODELIST,
// except with --distribution=arbitrary. Its port is made from the numbers of job and step. MASTER_ADDR and MASTER_PORT take
// priority where they are set. `interface`: as in ProcessEnvironment. Throws BuildError for what is missing or no number.
inline ProcessEnvironment environment_from_slurm(const std::string& interface = {}) {
  const auto number = [](const char* name, std::int64_t lowest, std::int64_t highest) {
    return parse_number("the variable " + std::string{name}, detail::slurm_variable(name), lowest, highest);
  };
  ProcessEnvironment result;
  result.job_name = detail::variable("REPLICATOR_JOB").value_or("");
  result.world_size = static_cast<int>(number("SLURM_STEP_NUM_TASKS", 1, 1 << 20));
  result.rank = static_cast<int>(number("SLURM_PROCID", 0, result.world_size - 1));
  if (result.world_size == 1) return result;
  const auto job = number("SLURM_JOB_ID", 0, UINT32_MAX), step = number("SLURM_STEP_ID", 0, UINT32_MAX);
  // Another job may have the same port at the same time, so its processes may reach this job's process 0. It refuses them
  // by this name.
  if (result.job_name.empty()) result.job_name = "slurm " + std::to_string(job) + "." + std::to_string(step);
  const bool one_node = detail::slurm_variable("SLURM_STEP_NUM_NODES") == "1";
  const auto address = detail::variable("MASTER_ADDR");
  if (address)
    result.master_address = *address;
  else if (one_node && interface.empty())
    result.master_address = "127.0.0.1";
  else
    result.master_address = detail::first_host(detail::slurm_variable("SLURM_STEP_NODELIST"));
  const auto port = detail::variable("MASTER_PORT");
  result.master_port = port ? static_cast<std::uint16_t>(detail::number_variable("MASTER_PORT", *port, 1, 65535))
                            : detail::slurm_port(job, step);
  return result;
}

}  // namespace replicator::detail::transport
