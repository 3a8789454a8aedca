// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <replicator/collectives/run/local_fold.hpp>
#include <set>
#include <string>
#include <vector>

namespace test_tree {

namespace rc = replicator::detail::collectives;

namespace {

std::string term(int begin, int end) {
  if (end - begin == 1) return std::to_string(begin);
  const int middle = begin + (end - begin + 1) / 2;
  return "(" + term(begin, middle) + "+" + term(middle, end) + ")";
}

int ceil_log2(int n) {
  int bits = 0;
  while ((1 << bits) < n) ++bits;
  return bits;
}

}  // namespace

TEST_CASE("the tree over five replicas splits after three, and the three after two") {
  const rc::TreeNode root{0, 5};
  CHECK(root.left() == rc::TreeNode{0, 3});
  CHECK(root.right() == rc::TreeNode{3, 5});
  CHECK(root.left().left() == rc::TreeNode{0, 2});
  CHECK(root.left().right().leaf());
}

TEST_CASE("maximal subtrees of a block: known cases") {
  using Nodes = std::vector<rc::TreeNode>;
  CHECK(rc::maximal_subtrees(8, 0, 8) == Nodes{{0, 8}});
  CHECK(rc::maximal_subtrees(8, 0, 3) == Nodes{{0, 2}, {2, 3}});
  CHECK(rc::maximal_subtrees(8, 3, 6) == Nodes{{3, 4}, {4, 6}});
  CHECK(rc::maximal_subtrees(8, 6, 8) == Nodes{{6, 8}});
  CHECK_THROWS_AS(rc::maximal_subtrees(8, 3, 3), replicator::BuildError);
  CHECK_THROWS_AS(rc::maximal_subtrees(8, 3, 9), replicator::BuildError);
}

TEST_CASE("maximal subtrees cover every block of every number of replicas exactly once") {
  for (int replicas = 1; replicas <= 40; ++replicas)
    for (int begin = 0; begin < replicas; ++begin)
      for (int end = begin + 1; end <= replicas; ++end) {
        int next = begin;
        for (const auto& node : rc::maximal_subtrees(replicas, begin, end)) {
          REQUIRE(node.begin == next);
          next = node.end;
        }
        REQUIRE(next == end);
      }
}

TEST_CASE("a local fold computes every partial as T does, with at most ceil(log2 m) + 1 unfinished buffers") {
  for (int replicas = 1; replicas <= 40; ++replicas)
    for (int begin = 0; begin < replicas; begin += 1 + replicas / 7)
      for (int end = begin + 1; end <= replicas; ++end) {
        const rc::LocalFold fold{replicas, begin, end};
        const int partials = static_cast<int>(fold.partials().size());
        std::vector<std::string> buffers(static_cast<std::size_t>(partials + fold.temporaries()));
        int next = begin, most = 0;
        std::set<int> alive;
        for (const auto& leaf : fold.leaves()) {
          REQUIRE(leaf.replica == next++);
          REQUIRE(buffers[static_cast<std::size_t>(leaf.buffer)].empty());
          buffers[static_cast<std::size_t>(leaf.buffer)] = std::to_string(leaf.replica);
          alive.insert(leaf.buffer);
          most = std::max(most, static_cast<int>(alive.size()));
          for (const auto& step : leaf.folds) {
            auto& into = buffers[static_cast<std::size_t>(step.into)];
            auto& from = buffers[static_cast<std::size_t>(step.from)];
            REQUIRE_FALSE(into.empty());
            REQUIRE_FALSE(from.empty());
            into = "(" + into + "+" + from + ")";
            from.clear();
            alive.erase(step.from);
          }
          for (int p = 0; p < partials; ++p) {
            const auto node = fold.partials()[static_cast<std::size_t>(p)];
            if (buffers[static_cast<std::size_t>(p)] == term(node.begin, node.end)) alive.erase(p);
          }
        }
        REQUIRE(next == end);
        REQUIRE(most <= ceil_log2(end - begin) + 1);
        for (int p = 0; p < partials; ++p) {
          const auto node = fold.partials()[static_cast<std::size_t>(p)];
          REQUIRE(buffers[static_cast<std::size_t>(p)] == term(node.begin, node.end));
        }
      }
}

}  // namespace test_tree
