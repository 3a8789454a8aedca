// SPDX-License-Identifier: Apache-2.0
// Exchanges between the processes of a job before the first step. They check that all run the same experiment and the
// same step, and gather the facts that resolution needs.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <replicator/core/hash.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/devices/kernel_library_text.hpp>
#include <replicator/engine/collective_task.hpp>
#include <replicator/engine/fingerprint.hpp>
#include <replicator/engine/host_sets.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/resolve/graph_outline.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

template <class T>
std::vector<T> unpacked(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

inline std::string regime_text(const Deployment& d) {
  if (d.regime == Regime::synchronous) return "sync";
  return "async, " + (d.staleness ? std::to_string(*d.staleness) : std::string{"any"}) + ", " + std::to_string(d.sync_group);
}

// The facts that all processes of a job must share before the first step: program, arguments, machine.
inline Fingerprint experiment_fingerprint(const Deployment& deployment) {
  const auto kind = deployment.devices[0].kind;
  const std::string machines = "give all hosts of a job the same kind of processor, libraries and ONEDNN_* variables: each decides bits";
  return {{"the program", build_digest().text(), {}},
          {"--replicas", std::to_string(deployment.replicas), {}},
          {"--logical-devices", std::to_string(deployment.logical_devices), {}},
          {"--seed", std::to_string(deployment.seed), {}},
          {"--threads-per-device", std::to_string(deployment.threads_per_device), {}},
          {"--winograd, --tf32, --fastest-kernels, --row-major-images and --fuse-convolutions", deployment.kernel_choice.text(), {}},
          {"--bucket-bytes", std::to_string(deployment.bucket_bytes), {}},
          {"--transport", deployment.transport, {}},
          {"--schedule", deployment.schedule, {}},
          {"--topology", deployment.topology.empty() ? "no file" : "a file", {}},
          {"--link", deployment.link.empty() ? "no such flag" : deployment.link, {}},
          {"--regime, --staleness and --sync-group", detail::regime_text(deployment), {}},
          {"--recompute-bytes", std::to_string(deployment.recompute_bytes), {}},
          {"--trace, --plan and --skew", deployment.see.gathered(), {}},
          {"--elastic", deployment.elastic ? "the flag" : "no such flag", {}},
          {"--elastic-arbiter", deployment.elastic_arbiter.empty() ? "no such flag" : "the flag", {}},
          {"--check-drift", std::to_string(deployment.see.check_drift), {}},
          {"--audit", std::to_string(deployment.see.audit), {}},
          {"--checkpoint, --every and --resume", deployment.checkpoint.gathered(), {}},
          {"the kind of devices", std::string{name_of(kind)}, {}},
          {"the instruction set", instruction_set(), {}, machines},
          {"the library of kernels", kernel_library(kind), {}, machines}};
}

// The first exchange of every job, elastic or not, so that it finds an --elastic that only some processes have. Collective,
// like all functions below. Throws the same BuildError on every process if the programs, arguments or
// machines differ in a way that decides bits.
inline void compare_experiments(transport::Job& job, const Deployment& deployment) {
  if (job.size() > 1) compare_fingerprints(job, experiment_fingerprint(deployment));
}

// What one process sends where traced graphs differ: how its own replicas differ, and the step of its first replica.
struct TracedStep {
  std::string between_replicas;  // see difference_of_replicas
  Fingerprint requests;
  GraphOutline outline;

  std::vector<std::byte> pack() const {
    const auto fields = texts_of(requests);
    std::vector<std::string> texts{between_replicas, std::to_string(fields.size())};
    texts.insert(texts.end(), fields.begin(), fields.end());
    outline.add_to(texts);
    return pack_texts(texts);
  }
  // Throws CommunicationError for bytes that pack() cannot have written.
  static TracedStep unpack(const std::vector<std::byte>& bytes, int process) {
    const auto texts = unpack_texts(bytes, process);
    std::size_t fields = 0;
    if (texts.size() < 2 || std::from_chars(texts[1].data(), texts[1].data() + texts[1].size(), fields).ec != std::errc{} || fields > texts.size() - 2)
      refuse_fingerprint(process);
    const auto rest = std::span{texts}.subspan(2);
    auto outline = GraphOutline::from(rest.subspan(fields));
    if (!outline) refuse_fingerprint(process);
    return {texts[0], fields_of(rest.first(fields), process), std::move(*outline)};
  }
};

// Compares the first graph of each process with that of process 0. Throws the same BuildError on every process if they
// ask for different collectives, variables or results. `graphs`: the different ones of this process, with their digests. Returns the
// sentence for mirrored variables that would be given different values; empty if there are none.
inline std::string compare_graphs(CollectiveTask& building, std::span<const Graph* const> graphs, std::span<const Digest> digests) {
  Hasher hasher;
  for (const auto& digest : std::set<Digest>(digests.begin(), digests.end())) hasher.digest(digest);
  const Digest mine = hasher.result();
  const auto alike = building.exchange(std::as_bytes(std::span{&mine, 1}));
  if (graphs.size() == 1 && std::all_of(alike.begin(), alike.end(), [&](const auto& theirs) { return theirs == alike[0]; })) return {};

  TracedStep step{difference_of_replicas(graphs), {}, outline_of(*graphs[0])};
  add_requests(step.requests, *graphs[0]);
  const auto all = building.exchange(step.pack());
  const auto& job = building.job();
  auto first = TracedStep::unpack(all[0], 0);
  std::string found = first.between_replicas;
  for (int process = 1; process < job.size(); ++process) {
    auto theirs = TracedStep::unpack(all[static_cast<std::size_t>(process)], process);
    const OutlineNames names{"process 0", "process " + std::to_string(process)};
    const auto mend = "their step functions differ first in " + first_difference(first.outline, theirs.outline, names) + ": " + same_step;
    for (auto* fields : {&first.requests, &theirs.requests})
      for (auto& field : *fields) field.mend = mend;
    require_same(theirs.requests, first.requests, job.describe(process), job.describe(0));
    const auto assigned = assigned_by_one(first.outline, theirs.outline, job.describe(0), job.describe(process));
    if (!assigned.empty()) throw BuildError{assigned};
    if (found.empty()) {
      const auto different = assigned_differently(first.outline, theirs.outline, names);
      if (!different.empty())
        found = "the step functions of " + job.describe(0) + " and " + job.describe(process) + " differ: " + different +
                ": every process must build the same step, so let nothing that is assigned depend on the process or the replica";
    }
    if (found.empty()) found = theirs.between_replicas;
  }
  return found;
}

// Throws the same BuildError on every process if the collectives, variables or results of the step differ.
inline void compare_steps(CollectiveTask& building, const Resolution& resolution, const VariableStore& variables, const HostSets& sets) {
  if (building.job().size() == 1) return;
  Fingerprint fields;
  add_resolution(fields, resolution);
  for (const auto& name : variables.names()) {
    const auto& declaration = variables.declaration(name);
    if (declaration.kind != VariableKind::mirrored) continue;
    Hasher hasher;
    hasher.bytes(variables.value(name, 0).bytes());
    fields.push_back({"the variable \"" + name + "\"", declaration.type.text() + " " + hasher.result().text(), sets.where(name),
                      "start the same program with the same arguments on every host, and let all processes make the same calls of set()"});
  }
  require_equal(building.job(), building.exchange(detail::pack(fields)));
}

// The digests of the values that the graphs of all processes compute.
inline std::set<Digest> common_to_processes(CollectiveTask& building, const std::set<Digest>& mine) {
  if (building.job().size() == 1) return mine;
  const std::vector<Digest> flat{mine.begin(), mine.end()};
  std::set<Digest> result = mine;
  for (const auto& bytes : building.exchange(std::as_bytes(std::span{flat}))) {
    const auto theirs = detail::unpacked<Digest>(bytes);
    const std::set<Digest> known{theirs.begin(), theirs.end()};
    std::erase_if(result, [&](const Digest& digest) { return !known.contains(digest); });
  }
  return result;
}

// The order of process 0. If its number of collectives differs, returns `mine`: compare_steps reports the difference.
inline std::vector<std::uint32_t> order_of_first_process(CollectiveTask& building, const std::vector<std::uint32_t>& mine) {
  if (building.job().size() == 1) return mine;
  const auto all = building.exchange(std::as_bytes(std::span{mine}));
  const auto first = detail::unpacked<std::uint32_t>(all[0]);
  return first.size() == mine.size() ? first : mine;
}

// Raises each number to the largest of any process. Returns true if all processes had the same numbers. Also returns
// true if their number of collectives differs: compare_steps reports that.
inline bool latest_of_processes(CollectiveTask& building, std::vector<std::uint32_t>& mine) {
  if (building.job().size() == 1) return true;
  std::vector<std::vector<std::uint32_t>> all;
  for (const auto& bytes : building.exchange(std::as_bytes(std::span{mine})))
    all.push_back(detail::unpacked<std::uint32_t>(bytes));
  bool same = true;
  for (const auto& theirs : all) {
    if (theirs.size() != all[0].size()) return true;
    same &= theirs == all[0];
  }
  for (const auto& theirs : all)
    for (std::size_t k = 0; k < mine.size(); ++k) mine[k] = std::max(mine[k], theirs[k]);
  return same;
}

}  // namespace replicator::detail
