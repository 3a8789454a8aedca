// SPDX-License-Identifier: Apache-2.0
// Raw collectives on the caller's own memory, over every kind of transport, have the bits of plain loops. Input and
// output may be the same buffer, at odd addresses, or in memory that peers can reach.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <replicator/collectives/run/run.hpp>
#include <replicator/world/sliced_collectives.hpp>
#include <string>
#include <vector>

#include "../support/cases.hpp"
#include "ranks.hpp"

namespace test_sliced_collectives {

namespace rc = replicator::detail::collectives;
using namespace replicator::test;
using rc::Kind;

namespace {

constexpr Kind kinds[] = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::broadcast, Kind::all_to_all};

using Values = std::vector<float>;

// What a replica contributes: sums of it must round.
float leaf(int replica, std::int64_t i) {
  const auto mixed = static_cast<std::uint32_t>(i * 2654435761u + static_cast<std::uint32_t>(replica) * 40503u);
  return static_cast<float>(mixed >> 8) * 1.7e-7f - 1.3f;
}

float tree(rc::TreeNode node, std::int64_t i) {
  return node.leaf() ? leaf(node.begin, i) : tree(node.left(), i) + tree(node.right(), i);
}

Values inputs_of(Kind kind, const rc::ReplicaBlocks& blocks, int rank, std::int64_t count, int root) {
  const std::int64_t each = rc::scatters(kind) ? count * blocks.replicas() : count;
  Values values;
  for (int r = blocks.begin(rank); r < blocks.end(rank); ++r)
    for (std::int64_t i = 0; i < each; ++i)
      if (kind != Kind::broadcast || r == root) values.push_back(leaf(r, i));
  return values;
}

Values outputs_of(Kind kind, const rc::ReplicaBlocks& blocks, int rank, std::int64_t count, int root) {
  Values values;
  const int replicas = blocks.replicas();
  const auto add = [&](auto&& value) {
    for (std::int64_t i = 0; i < count; ++i) values.push_back(value(i));
  };
  if (kind == Kind::all_reduce) add([&](std::int64_t i) { return tree({0, replicas}, i); });
  if (kind == Kind::broadcast) add([&](std::int64_t i) { return leaf(root, i); });
  for (int r = 0; kind == Kind::all_gather && r < replicas; ++r) add([&](std::int64_t i) { return leaf(r, i); });
  for (int r = blocks.begin(rank); r < blocks.end(rank); ++r) {
    if (kind == Kind::reduce_scatter) add([&](std::int64_t i) { return tree({0, replicas}, r * count + i); });
    for (int from = 0; kind == Kind::all_to_all && from < replicas; ++from)
      add([&](std::int64_t i) { return leaf(from, r * count + i); });
  }
  return values;
}

// Where a call's buffers lie.
enum class Lie {
  apart,
  in_place,
  odd,
  reached,
  reached_in_place
};

class Caller {
 public:
  Caller(rc::SlicedCollectives& sliced, const rc::ReplicaBlocks& blocks, int rank) : sliced_{sliced}, blocks_{blocks}, rank_{rank} {
    room_ = (static_cast<std::size_t>(most * blocks.replicas() * blocks.replicas()) * sizeof(float) + 127) / 64 * 64;
    own_.resize(2 * room_ + 1);
    reached_ = sliced.allocate(2 * room_);
    if (!reached_) reached_ = own_.data();
  }

  void check(Kind kind, std::int64_t count, Lie lie) {
    const int root = blocks_.replicas() - 1;
    const Values input = inputs_of(kind, blocks_, rank_, count, root), wanted = outputs_of(kind, blocks_, rank_, count, root);
    const bool reached = lie == Lie::reached || lie == Lie::reached_in_place, in_place = lie == Lie::in_place || lie == Lie::reached_in_place;
    std::byte* const from = reached ? reached_ : own_.data() + (lie == Lie::odd ? 1 : 0);
    std::byte* const to = in_place ? from : from + room_;
    if (!input.empty()) std::memcpy(from, input.data(), input.size() * sizeof(float));
    rc::RawCall call;
    call.kind = kind;
    call.root = root;
    call.count = count;
    call.input = from;
    call.output = to;
    call.require_valid(blocks_, rank_);
    sliced_.run(call, std::chrono::seconds{20});
    if (!wanted.empty() && std::memcmp(to, wanted.data(), wanted.size() * sizeof(float)) != 0)
      throw replicator::Error{call.text() + " has wrong bits, case " + std::to_string(static_cast<int>(lie))};
    // What was only read is as it was.
    if (!in_place && !input.empty() && std::memcmp(from, input.data(), input.size() * sizeof(float)) != 0)
      throw replicator::Error{call.text() + " has changed its input, case " + std::to_string(static_cast<int>(lie))};
  }

  static constexpr std::int64_t most = 30001;

 private:
  rc::SlicedCollectives& sliced_;
  rc::ReplicaBlocks blocks_;
  int rank_;
  std::size_t room_;
  std::vector<std::byte> own_;
  std::byte* reached_;
};

template <class Endpoint>
void check_all(int ranks, int replicas, std::size_t window) {
  INFO(ranks << " ranks, " << replicas << " replicas, windows of " << window);
  const rc::ReplicaBlocks blocks{replicas, ranks};
  rt::InProcessGroup group{ranks};
  run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(Endpoint{group, rank}, blocks);
    rc::SlicedCollectives sliced{*communicator, window};
    Caller caller{sliced, blocks, rank};
    for (const Kind kind : kinds)
      for (const std::int64_t count : cases<std::int64_t>({1, 17, 1000, 5003, Caller::most}, {17, Caller::most}))
        for (const Lie lie : {Lie::apart, Lie::in_place, Lie::odd, Lie::reached, Lie::reached_in_place}) caller.check(kind, count, lie);
  });
}

template <class Endpoint>
void check_on() {
  for (const std::size_t window : {std::size_t{4096}, std::size_t{512} << 10}) {
    for (const int ranks : {1, 2, 3, 4}) check_all<Endpoint>(ranks, ranks, window);
    check_all<Endpoint>(2, 5, window);
    check_all<Endpoint>(4, 6, window);
  }
}

}  // namespace

TEST_CASE("raw collectives on the caller's memory have equal bits where peers can be written") { check_on<rt::InProcess>(); }

TEST_CASE("raw collectives on the caller's memory have equal bits where peers can be read only") { check_on<LoadsOnly>(); }

TEST_CASE("raw collectives on the caller's memory have equal bits where there are messages only") { check_on<MessagesOnly>(); }

}  // namespace test_sliced_collectives
