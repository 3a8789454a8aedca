// SPDX-License-Identifier: Apache-2.0
// CollectivePlacer: places the collectives of a device's program. It decides where contributions go, when partial sums
// are folded, when a collective starts, and where the program waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <replicator/collectives/choose/choice.hpp>
#include <replicator/collectives/run/communicator.hpp>
#include <replicator/collectives/run/local_fold.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/plan/plan_request.hpp>
#include <replicator/runtime/plan/program_builder.hpp>

namespace replicator::detail {

class CollectivePlacer {
 public:
  // A replica's contribution to a collective.
  struct Contribution {
    const Placeholder& placeholder;
    int replica;           // counted on the device
    std::uint32_t buffer;  // holds the value, which has `bytes` bytes
    std::size_t bytes;
    bool movable;  // nothing else reads the value, so it may be placed where the collective needs it
  };

  // For the collectives of the replicas' device `request.device`. The request outlives this object.
  CollectivePlacer(const PlanRequest& request, ProgramBuilder& builder)
      : request_{request}, resolution_{request.resolution}, communicator_{request.communicator}, blocks_{communicator_.blocks()}, builder_{builder} {}

  // Collective: all devices of the communicator call it at the same time, because collectives allocate together.
  void prepare() {
    const auto count = resolution_.buckets.size();
    leaves_.resize(count);
    collective_of_.resize(count);
    program_.in_flight.reserve(count);
    for (std::uint32_t b = 0; b < count; ++b) {
      const auto& bucket = resolution_.buckets[b];
      const auto& first = resolution_.collectives[bucket.members[0]];
      groups_.push_back(first.what.groups.over(blocks_.replicas()));
      folds_.emplace_back(blocks_, groups_.back(), communicator_.rank());
      if (first.device != request_.device) continue;
      const auto kind = first.what.kind;
      collectives::CollectiveSpec spec{kind, first.type.dtype, first.what.reduction, first.type.shape.elements(), first.what.root,
                                       first.what.any_order, first.text, 0, first.what.groups};
      if (kind == CollectiveKind::all_reduce) spec.elements = bucket.elements;
      if (collectives::scatters(kind)) spec.elements /= groups_.back().size(0);
      if (bucket.members.size() > 1) spec.name += " and " + std::to_string(bucket.members.size() - 1) + " more";
      collective_of_[b] = add(std::move(spec), request_.device_communicator ? *request_.device_communicator : communicator_, request_.through_host);
      program_.collectives[collective_of_[b]].members = static_cast<int>(bucket.members.size());
      program_.collectives[collective_of_[b]].bucket = b;
    }
  }
  // Adds a collective beside those of the resolution, in host memory. The caller writes its inputs and appends its
  // start.
  std::uint32_t add(collectives::CollectiveSpec spec) { return add(std::move(spec), communicator_, {}); }

  // The device's last contribution starts the collective.
  void contribute(const Contribution& given) {
    const auto bucket = bucket_of(given.placeholder);
    if (leaves_[bucket] == 0) program_.collectives[collective_of_[bucket]].asked = static_cast<std::uint32_t>(program_.code.size());
    if (collectives::reduces(given.placeholder.kind)) contribute_leaf(given, bucket);
    else contribute_to(given, input(bucket, given.replica));
    if (++leaves_[bucket] == resolution_.buckets[bucket].members.size() * static_cast<std::size_t>(blocks_.count(communicator_.rank()))) {
      builder_.append_collective(Instruction::Kind::start, collective_of_[bucket]);
    }
  }
  // The index of the collective in the program.
  std::uint32_t collective_of(const Placeholder& placeholder) const { return collective_of_[bucket_of(placeholder)]; }
  // The address of the collective's result for this replica of the device. The result has `bytes` bytes.
  std::byte* output(const Placeholder& placeholder, int replica, std::size_t bytes) const {
    const auto bucket = bucket_of(placeholder);
    const auto& use = program_.collectives[collective_of_[bucket]];
    std::byte* output = use.collective->output() + offset_of(placeholder.ordinal);
    // Each replica has its own part, or each group of the rank.
    const int rank = communicator_.rank();
    const int group = groups_[bucket].group_of(blocks_.begin(rank) + replica);
    const int part = collectives::scatters(placeholder.kind) ? replica : collectives::index_on(blocks_, groups_[bucket], group, rank);
    const bool merged = placeholder.kind == CollectiveKind::all_reduce;
    return output + static_cast<std::size_t>(part) * (merged ? static_cast<std::size_t>(use.bytes) : bytes);
  }

  void wait_for(std::uint32_t collective) {
    if (waited_[collective]) return;
    waited_[collective] = true;
    builder_.append_collective(Instruction::Kind::wait, collective);
  }
  void wait_for_all() {
    for (std::uint32_t collective = 0; collective < program_.collectives.size(); ++collective) wait_for(collective);
  }

 private:
  std::uint32_t bucket_of(const Placeholder& placeholder) const { return resolution_.bucket_of[placeholder.ordinal]; }
  std::byte* input(std::uint32_t bucket, int index) const { return program_.collectives[collective_of_[bucket]].collective->input(index); }
  // The offset of a collective in its bucket, in bytes.
  std::size_t offset_of(std::uint32_t ordinal) const {
    return static_cast<std::size_t>(resolution_.buckets[resolution_.bucket_of[ordinal]].offsets[resolution_.member_of[ordinal]]) *
           size_of(resolution_.collectives[ordinal].type.dtype);
  }

  std::uint32_t add(collectives::CollectiveSpec spec, collectives::Communicator& communicator, const std::string& remark) {
    const auto index = static_cast<std::uint32_t>(program_.collectives.size());
    spec.id = request_.first_collective + index;
    const auto bytes = static_cast<std::int64_t>(size_of(spec.dtype)) * spec.elements;
    auto choice = collectives::choose(spec.kind, bytes, blocks_, spec.root, spec.any_order, request_.all_reduce, spec.groups, communicator.latency());
    if (!remark.empty()) choice.reason += "; " + remark;
    auto prepared = communicator.prepare(spec, choice.schedule);
    program_.collectives.push_back({std::move(prepared), spec.name, std::move(choice.reason), choice.microseconds, bytes, 1, spec,
                                    std::move(choice.schedule), CollectiveUse::none});
    waited_.push_back(false);
    note_memory(program_.collectives.back());
    return index;
  }
  // Pins host buffers, which makes their copies fast: the collective's memory as a whole, because pages are pinned whole and
  // only once. Buffers on the device need no pinning.
  void note_memory(const CollectiveUse& use) {
    auto& collective = *use.collective;
    if (collective.on_device()) for_each_buffer(use, [&](std::byte* data, std::size_t bytes) { program_.device_memory.emplace_back(data, bytes); });
    else if (const auto* staging = builder_.support().staging) program_.pinned.emplace_back(*staging, collective.input(0), collective.bytes());
  }
  template <class F>
  void for_each_buffer(const CollectiveUse& use, F f) const {
    auto& collective = *use.collective;
    const auto block = static_cast<std::size_t>(use.bytes);
    for (int i = 0; i < collective.inputs(); ++i) f(collective.input(i), block * static_cast<std::size_t>(use.schedule.input_blocks()));
    if (collective.output() == collective.input(0)) return;  // a rank alone
    f(collective.output(), block * static_cast<std::size_t>(use.schedule.output_blocks(communicator_.rank())));
  }
  void contribute_to(const Contribution& given, std::byte* destination) {
    if (given.movable) builder_.memory(given.buffer).fixed = destination;
    else builder_.copy(given.buffer, builder_.fixed_buffer(destination, given.bytes), given.bytes);
  }
  void contribute_leaf(const Contribution& given, std::uint32_t bucket) {
    const auto ordinal = given.placeholder.ordinal;
    const auto offset = offset_of(ordinal);
    const auto& folds = folds_[bucket];
    const auto& leaf = folds.leaves()[static_cast<std::size_t>(given.replica)];
    const auto partials = static_cast<int>(folds.partials().size());
    const auto where = [&](int buffer) -> std::uint32_t {
      if (buffer < partials) return builder_.fixed_buffer(input(bucket, buffer) + offset, given.bytes);
      return temporaries_.at({ordinal, buffer});
    };
    if (leaf.buffer < partials) {
      contribute_to(given, input(bucket, leaf.buffer) + offset);
    } else if (given.movable) {
      temporaries_[{ordinal, leaf.buffer}] = given.buffer;
    } else {
      const auto temporary = builder_.arena_buffer(given.bytes);
      builder_.copy(given.buffer, temporary, given.bytes);
      temporaries_[{ordinal, leaf.buffer}] = temporary;
    }
    const auto& type = resolution_.collectives[ordinal].type;
    for (const auto& step : leaf.folds) {
      Instruction fold;
      fold.kind = Instruction::Kind::fold;
      fold.dtype = type.dtype;
      fold.reduction = given.placeholder.reduction;
      fold.elements = type.shape.elements();
      fold.collective = collective_of_[bucket];
      builder_.append(fold, {where(step.into), where(step.from)});
    }
  }

  const PlanRequest& request_;
  const Resolution& resolution_;
  collectives::Communicator& communicator_;  // in host memory
  const collectives::ReplicaBlocks blocks_;
  ProgramBuilder& builder_;
  Program& program_ = builder_.program();
  std::vector<Groups> groups_;                                          // by bucket, with all members listed
  std::vector<collectives::LocalFold> folds_;                           // by bucket
  std::map<std::pair<std::uint32_t, int>, std::uint32_t> temporaries_;  // (ordinal, buffer of the fold) -> buffer
  std::vector<std::size_t> leaves_;                                     // contributions so far, by bucket
  std::vector<std::uint32_t> collective_of_;                            // bucket -> collective of the program
  std::vector<bool> waited_;                                            // by collective of the program
};

}  // namespace replicator::detail
