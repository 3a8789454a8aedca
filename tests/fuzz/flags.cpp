// SPDX-License-Identifier: Apache-2.0
// Fuzzes command lines of a Deployment: one argument per line.
// covers: replicate/deployment_flags.hpp replicate/deployment.hpp replicate/record_options.hpp core/parse.hpp
// covers: core/nearest_word.hpp collectives/algorithms/all_reduces.hpp
#include <replicator/collectives/algorithms/all_reduces.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/deployment_flags.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  std::string text{text_of(input)};
  std::vector<const char*> arguments{"program"};
  bool help = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = text.find('\n', at);
    if (end != std::string::npos) text[end] = '\0';
    arguments.push_back(text.c_str() + at);
    help = help || std::string_view{arguments.back()} == "--help" || std::string_view{arguments.back()} == "-h";
    at = end == std::string::npos ? text.size() : end + 1;
  }
  const int count = static_cast<int>(arguments.size());
  documented<BuildError>("--", [&] {
    const auto deployment = Deployment::from(count, arguments.data());
    require(deployment.replicas >= 1 && deployment.threads_per_device >= 1 && deployment.deadline.count() >= 0, "numbers that cannot be");
    require(deployment.devices_per_replica() >= 1, "no devices");
    const auto wanted = collectives::parse_all_reduce(deployment.schedule, {2, 2});
    for (const int dimension : wanted.dimensions) require(dimension >= 1, "a dimension that cannot be");
    documented<BuildError>("all_reduce", [&] {
      static_cast<void>(collectives::all_reduce_by_name(wanted.name == "auto" ? collectives::AllReducePreference{"ring"} : wanted, {8, 4}));
    });
  });
  if (!help) documented<BuildError>("--", [&] { Deployment::only_from(count, arguments.data()); });
}

std::vector<std::string> seeds() {
  return {"--replicas\n8\n--devices=cpu:0-3\n--serial\nother\n--seed\n7",
          "--memory-limit\n8GiB\n--record\nreplica=3,steps=100:110,file=F\n--trace-steps=1:11\n--schedule\nhierarchical:2x2",
          "--deadline=5\n--devices\ncuda:0x4,cpu:1\n--logical-devices=5\n--transport\nucx\n--check-drift=9", "--replica=3"};
}

}  // namespace replicator::fuzz
