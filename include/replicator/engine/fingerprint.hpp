// SPDX-License-Identifier: Apache-2.0
// Fingerprint: the facts that must be equal on all processes of a job. They are compared before a step moves its first
// byte.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/engine/program_identity.hpp>
#include <replicator/job/job.hpp>
#include <replicator/resolve/placeholders.hpp>
#include <replicator/resolve/resolution.hpp>

namespace replicator::detail {

struct FingerprintField {
  std::string name;   // compared
  std::string value;  // compared
  std::string where;  // shown in the message: "all_reduce "loss" at gan.cpp:41"
  std::string mend = "start the same program with the same arguments on every host";
};

using Fingerprint = std::vector<FingerprintField>;

[[noreturn]] inline void refuse_fingerprint(int process) {
  throw CommunicationError{"process " + std::to_string(process) + " sent a fingerprint that cannot be read: is it the same program?", process};
}

inline std::vector<std::byte> pack_texts(std::span<const std::string> texts) {
  std::vector<std::byte> bytes;
  for (const auto& text : texts) {
    const auto size = static_cast<std::uint32_t>(text.size());
    const auto* head = reinterpret_cast<const std::byte*>(&size);
    bytes.insert(bytes.end(), head, head + sizeof size);
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    bytes.insert(bytes.end(), data, data + text.size());
  }
  return bytes;
}
// Throws CommunicationError for bytes that pack_texts() cannot have written.
inline std::vector<std::string> unpack_texts(const std::vector<std::byte>& bytes, int process) {
  std::vector<std::string> texts;
  for (std::size_t position = 0; position < bytes.size();) {
    std::uint32_t size = 0;
    if (bytes.size() - position < sizeof size) refuse_fingerprint(process);
    std::memcpy(&size, bytes.data() + position, sizeof size);
    position += sizeof size;
    if (bytes.size() - position < size) refuse_fingerprint(process);
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data() + position), size);
    position += size;
  }
  return texts;
}

inline std::vector<std::string> texts_of(const Fingerprint& fields) {
  std::vector<std::string> texts;
  for (const auto& field : fields) texts.insert(texts.end(), {field.name, field.value, field.where, field.mend});
  return texts;
}
// Throws CommunicationError for texts that are no fields.
inline Fingerprint fields_of(std::span<const std::string> texts, int process) {
  if (texts.size() % 4 != 0) refuse_fingerprint(process);
  Fingerprint fields;
  for (std::size_t i = 0; i < texts.size(); i += 4) fields.push_back({texts[i], texts[i + 1], texts[i + 2], texts[i + 3]});
  return fields;
}

inline std::vector<std::byte> pack(const Fingerprint& fields) { return detail::pack_texts(detail::texts_of(fields)); }
// Throws CommunicationError for bytes that pack() of the same program cannot have written.
inline Fingerprint unpack(const std::vector<std::byte>& bytes, int process) { return detail::fields_of(detail::unpack_texts(bytes, process), process); }

inline std::string show(const FingerprintField& field) { return field.where.empty() ? field.value : field.where + " with " + field.value; }

// Throws BuildError at the first difference. `who` names the process that has `mine`, `zero` names process 0, which has
// `first`.
inline void require_same(const Fingerprint& mine, const Fingerprint& first, const std::string& who, const std::string& zero) {
  for (std::size_t i = 0; i < mine.size() && i < first.size(); ++i) {
    if (mine[i].name == first[i].name && mine[i].value == first[i].value) continue;
    throw BuildError{"the processes of this job differ in " + first[i].name + ": " + who + " has " +
                     (mine[i].name == first[i].name ? show(mine[i]) : mine[i].name + " (" + show(mine[i]) + ")") +
                     ", " + zero + " has " + show(first[i]) + ": " + first[i].mend};
  }
  if (mine.size() != first.size()) {
    const bool more = mine.size() > first.size();
    const auto& extra = more ? mine[first.size()] : first[mine.size()];
    throw BuildError{(more ? who : zero) + " has " + extra.name + " (" + show(extra) + "), which " +
                     (more ? zero : who) + " has not: " + extra.mend};
  }
}

// `all`: the packed fingerprints of all processes. Throws the same BuildError on all of them, with the first field in
// which a process differs from process 0.
inline void require_equal(const transport::Job& job, const std::vector<std::vector<std::byte>>& all) {
  const auto first = detail::unpack(all[0], 0);
  for (int process = 1; process < job.size(); ++process)
    detail::require_same(detail::unpack(all[static_cast<std::size_t>(process)], process), first, job.describe(process), job.describe(0));
}
// Collective: every process calls it with its own fingerprint.
inline void compare_fingerprints(transport::Job& job, const Fingerprint& mine) {
  if (job.size() > 1) require_equal(job, job.exchange(detail::pack(mine), "the comparison of fingerprints"));
}

inline std::string text_of(const Initializer& initializer) {
  Hasher hasher;
  hasher.word(static_cast<std::uint64_t>(initializer.kind));
  hasher.word(std::bit_cast<std::uint64_t>(initializer.a.real()));
  hasher.word(static_cast<std::uint64_t>(initializer.a.whole()));
  hasher.word(std::bit_cast<std::uint64_t>(initializer.b));
  if (initializer.array) hasher.bytes(initializer.array->bytes());
  return hasher.result().text();
}

inline constexpr const char* same_step = "every process must build the same step, so let nothing in it depend on the process";

// `k`: its number; `place`: where it is in the step; `where`: what and where the user asked.
inline FingerprintField collective_field(std::size_t k, const TensorType& type, const Placeholder& what, const std::string& place, const std::string& where) {
  AttributePrinter attributes;
  what.describe(attributes);
  return {"collective " + std::to_string(k), type.text() + " " + attributes.text() + place, where, same_step};
}

// The variables and results, on which all replicas agree: see check_agreement.
inline void add_interface(Fingerprint& fields, const Graph& graph) {
  std::map<std::string, const VariableDeclaration*> variables;
  for (const auto& variable : graph.variables()) variables[variable.name] = &variable;
  for (const auto& [name, variable] : variables)
    fields.push_back({"the variable \"" + name + "\"",
                      std::string{name_of(variable->kind)} + " " + variable->type.text() + " first value " + text_of(variable->initializer) + (variable->apart ? " apart" : "") +
                          " device=" + std::to_string(variable->device),
                      variable->where.text(), same_step});
  for (std::size_t k = 0; k < graph.results().size(); ++k)
    fields.push_back({"result " + std::to_string(k) + " of the step", graph.type(graph.results()[k]).text(), {}, same_step});
}

// The collectives that a graph asks for, and add_interface. These must be equal on all processes, whatever else a replica
// computes.
inline void add_requests(Fingerprint& fields, const Graph& graph) {
  const auto nodes = placeholders_of(graph);
  fields.push_back({"the number of collectives", std::to_string(nodes.size()), {}, detail::same_step});
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const auto& node = graph.node(nodes[k]);
    fields.push_back(detail::collective_field(k, graph.type(node.inputs[0]), *node.get<Placeholder>(), " device=" + std::to_string(node.device), describe_placeholder(node)));
  }
  detail::add_interface(fields, graph);
}

// Collectives with all attributes, variables, results, and the values assigned to mirrored variables.
inline void add_resolution(Fingerprint& fields, const Resolution& resolution) {
  for (std::size_t k = 0; k < resolution.collectives.size(); ++k) {
    const auto& collective = resolution.collectives[k];
    const std::string place = " device=" + std::to_string(collective.device) + " segment=" + std::to_string(collective.segment);
    fields.push_back(detail::collective_field(k, collective.type, collective.what, place, collective.text));
  }
  const auto& first = resolution.classes[0];
  detail::add_interface(fields, first.graph);
  std::set<Digest> uniform;
  for (std::uint32_t i = 0; i < first.graph.nodes().size(); ++i)
    if (first.graph.node(i).get<Assign>() && first.uniformity.uniform[i]) uniform.insert(first.uniformity.digests[i][0]);
  Hasher hasher;
  for (const auto& digest : uniform) hasher.digest(digest);
  fields.push_back({"the values that mirrored variables are given", hasher.result().text(), {}, detail::same_step});
}

}  // namespace replicator::detail
