// SPDX-License-Identifier: Apache-2.0
// Fuzzes the variables of launchers and users: RANK, WORLD_SIZE, ..., one per line in this order; also as srun's.
// covers: job/rendezvous.hpp job/process_environment.hpp job/slurm.hpp job/wire/socket_address.hpp
#include <array>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/slurm.hpp>
#include <replicator/job/trust.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  static constexpr std::array names{"RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR",
                                    "REPLICATOR_JOB", "REPLICATOR_JOB_TOKEN", "REPLICATOR_INTERFACE", "SLURM_PROCID",
                                    "SLURM_JOB_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES",
                                    "SLURM_STEP_NODELIST"};
  std::string text{text_of(input)};
  for (const char* const name : names) {
    const auto end = text.find('\n');
    const auto value = text.substr(0, end);
    text.erase(0, end == std::string::npos ? end : end + 1);
    if (value.empty()) ::unsetenv(name);
    else ::setenv(name, value.c_str(), 1);
  }
  documented<BuildError>("", [&] {
    const bool srun = transport::detail::started_by_srun();
    const auto environment = srun ? transport::environment_from_slurm() : transport::find_environment();
    require(environment.rank >= 0 && environment.rank < environment.world_size, "a rank that cannot be");
    for (const auto& address : transport::detail::split_addresses(environment.master_address))
      require(!address.empty(), "an empty address");
    static_cast<void>(transport::detail::listening_address(environment));
  });
}

std::vector<std::string> seeds() {
  return {"1\n4\n29500\n127.0.0.1,::1\njob\n0123456789abcdef\nlo\n", "0\n1\n", "", "3\n2\n70000\n10.0.0.1\n",
          "0\n2\n29500\nlocalhost,::ffff:127.0.0.1\n\n\n127.0.0.1",
          "\n\n\n\n\n\n\n1\n77\n4\n0\n2\na[1-2]b[3-4],c\n", "\n\n\n\n\n\n\n1\n77\n4\n0\n1\nn07\n"};
}

}  // namespace replicator::fuzz
