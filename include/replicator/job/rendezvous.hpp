// SPDX-License-Identifier: Apache-2.0
// Finds a process's place in its job, and the address of process 0: from environment variables, or from a launcher.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <replicator/core/error.hpp>
#include <replicator/core/printable.hpp>
#include <replicator/io/read_text.hpp>
#include <replicator/job/etcd/directory.hpp>
#include <replicator/job/process_environment.hpp>
#include <replicator/job/slurm.hpp>
#include <string>
#include <utility>

namespace replicator::detail::transport {

// What the user may set besides the variables.
struct RendezvousOptions {
  std::string job_token_file;                                             // empty: the variable REPLICATOR_JOB_TOKEN, if set
  std::string interface;                                                  // empty: the variable REPLICATOR_INTERFACE, if set
  std::chrono::milliseconds connect_deadline = std::chrono::seconds{60};  // for a launcher that waits for the other processes
  bool insecure = false;                                                  // believe everybody; also by REPLICATOR_INSECURE=1
  std::string etcd{};                                                     // addresses of an etcd that tells where the job is, see Directory; empty: MASTER_ADDR and MASTER_PORT tell it
};

// A way to start jobs, such as PMIx. `join` may wait for the other processes.
struct Launcher {
  const char* name;
  bool (*present)();
  ProcessEnvironment (*join)(const std::string& interface, std::chrono::milliseconds deadline);
};

// The header of a launcher (pmix.hpp) fills this slot where it is part of the program.
inline constinit std::atomic<const Launcher*> launcher_slot{nullptr};

namespace detail {

inline int required_number(const char* name, int world_size, int lowest, int highest) {
  const auto text = variable(name);
  if (!text)
    throw BuildError{"WORLD_SIZE is " + std::to_string(world_size) + ", but the variable " + name +
                     " is missing: a job of several processes needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"};
  return number_variable(name, *text, lowest, highest);
}

// Whether a PMIx launcher (mpirun, prterun, srun) started this process, and possibly others too.
inline bool started_by_pmix() {
  if (!variable("PMIX_NAMESPACE") || !variable("PMIX_RANK")) return false;
  return variable("OMPI_COMM_WORLD_SIZE") != "1";
}

}  // namespace detail

// The job token from the variable or the file; empty without either. Throws BuildError for a token that is too short, that
// is given in both places, or in a file that cannot be read.
inline std::string find_job_token(const std::string& file) {
  constexpr std::size_t shortest = 16;
  auto token = detail::variable("REPLICATOR_JOB_TOKEN");
  if (file.empty() && !token) return {};
  if (!file.empty()) {
    if (token)
      throw BuildError{"the variable REPLICATOR_JOB_TOKEN is set and --job-token-file is \"" + file +
                       "\": leave one out"};
    token = read_text(file);
    if (!token) throw BuildError{"--job-token-file is \"" + file + "\", which cannot be read: " + std::strerror(errno)};
    while (!token->empty() && (token->back() == '\n' || token->back() == '\r')) token->pop_back();
  }
  if (token->size() < shortest)
    throw BuildError{(file.empty() ? std::string{"the variable REPLICATOR_JOB_TOKEN"} : "the token in " + file) +
                     " has " + std::to_string(token->size()) + " characters: it needs at least " +
                     std::to_string(shortest) + ", which cannot be guessed, as `openssl rand -hex 32` prints them"};
  return *token;
}

// Whether the variable REPLICATOR_INSECURE is 1. Throws BuildError where it is neither 0 nor 1.
inline bool insecure_by_variable() {
  constexpr const char* name = "REPLICATOR_INSECURE";
  const auto value = detail::variable(name);
  return value && detail::number_variable(name, *value, 0, 1) == 1;
}

// Reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and REPLICATOR_JOB (a name for the job) if set. A job without
// WORLD_SIZE, or with WORLD_SIZE 1, has one process. `by_etcd`: MASTER_ADDR and MASTER_PORT are not needed. Throws BuildError for what
// is missing, not a number, or contradictory.
inline ProcessEnvironment environment_from_variables(bool by_etcd = false) {
  ProcessEnvironment result;
  result.job_name = detail::variable("REPLICATOR_JOB").value_or("");
  const auto size = detail::variable("WORLD_SIZE");
  const auto rank = detail::variable("RANK");
  if (size) result.world_size = detail::number_variable("WORLD_SIZE", *size, 1, 1 << 20);
  if (rank) result.rank = detail::number_variable("RANK", *rank, 0, 1 << 20);
  if (rank && !size && (result.rank > 0 || detail::variable("MASTER_ADDR") || detail::variable("MASTER_PORT")))
    throw BuildError{"RANK is " + *rank + ", but WORLD_SIZE is missing: set it to the number of processes"};
  if (result.world_size == 1 && result.rank == 0) return result;
  if (result.rank >= result.world_size)
    throw BuildError{"RANK is " + std::to_string(result.rank) + ", but WORLD_SIZE is " +
                     std::to_string(result.world_size) + ": ranks count from 0 to WORLD_SIZE - 1"};
  result.rank = detail::required_number("RANK", result.world_size, 0, result.world_size - 1);
  if (by_etcd) return result;
  result.master_port = static_cast<std::uint16_t>(detail::required_number("MASTER_PORT", result.world_size, 1, 65535));
  const auto address = detail::variable("MASTER_ADDR");
  if (!address)
    throw BuildError{"WORLD_SIZE is " + std::to_string(result.world_size) +
                     ", but the variable MASTER_ADDR is missing: set it to the address of process 0"};
  result.master_address = *address;
  return result;
}

namespace detail {

inline ProcessEnvironment environment_of_launch(const std::string& interface, std::chrono::milliseconds deadline, bool by_etcd) {
  if (variable("WORLD_SIZE") || variable("RANK")) return environment_from_variables(by_etcd);
  if (const Launcher* launcher = launcher_slot.load(); launcher != nullptr && launcher->present())
    return launcher->join(interface, deadline);
  if (started_by_srun() && (!started_by_pmix() || pmix_is_slurms())) return environment_from_slurm(interface);
  if (launcher_slot.load() == nullptr && started_by_pmix())
    throw BuildError{
        "this process was started by a PMIx launcher (mpirun, prterun, srun), but the program was built without PMIx: "
        "install libpmix-dev (Debian), link replicator::pmix (or include <replicator/job/pmix.hpp> and link pmix) and build "
        "again. Or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (WORLD_SIZE=1 for a job of one process)"};
  return environment_from_variables();
}

// Makes the processes meet through an etcd, whatever else would lead them to process 0. Throws BuildError for a job without a name.
inline void meet_by_etcd(ProcessEnvironment& environment, const std::string& urls) {
  const auto name = variable("REPLICATOR_JOB");
  if (!name)
    throw BuildError{"--elastic-arbiter is \"" + urls +
                     "\", an etcd, which may know several jobs: give all processes of this one the same name, for instance by "
                     "`export REPLICATOR_JOB=resnet-7`"};
  if (name->find('/') != std::string::npos || printable(*name, name->size()) != *name || name->find(' ') != std::string::npos)
    throw BuildError{"REPLICATOR_JOB is \"" + printable(*name) + "\": the name of a job that meets through an etcd has no slashes, spaces or control characters"};
  environment.job_name = *name;
  environment.listener.reset();  // where a launcher has opened one, perhaps for this machine only
  environment.master_address.clear();
  environment.master_port = 0;
  environment.directory = std::make_shared<Directory>(urls, *name);
}

}  // namespace detail

// The first that applies of:
// 1. the variables, where WORLD_SIZE or RANK is set
// 2. the launcher that started this process
// 3. the variables of Slurm's srun
// 4. a job of one process
//
// Job token, interface and insecure come from the options, or from REPLICATOR_JOB_TOKEN, REPLICATOR_INTERFACE and
// REPLICATOR_INSECURE. With an etcd, the launcher's address of process 0 does not count. Without a token given, the launcher's is taken, if it has one. Throws BuildError where a launcher started the process but the program does not support it, and for a token that cannot be used.
template <class = void>
ProcessEnvironment find_environment(const RendezvousOptions& options = {}) {
  const auto interface =
      options.interface.empty() ? detail::variable("REPLICATOR_INTERFACE").value_or("") : options.interface;
  auto token = find_job_token(options.job_token_file);
  auto result = detail::environment_of_launch(interface, options.connect_deadline, !options.etcd.empty());
  if (!options.etcd.empty() && result.world_size > 1) detail::meet_by_etcd(result, options.etcd);
  if (!token.empty()) result.job_token = std::move(token);
  result.insecure = options.insecure || insecure_by_variable();
  result.interface = interface;
  return result;
}

}  // namespace replicator::detail::transport
