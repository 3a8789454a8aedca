// SPDX-License-Identifier: Apache-2.0
// A partition of the replicas into groups. A collective runs inside each group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/location.hpp>

namespace replicator {

// Every replica is in exactly one group. Members of a group ascend, and groups are ordered by their first member. A
// member's *position* is its index in its group. *Places* count all replicas group by group: first the members of group
// 0, then those of group 1. A default-constructed value lists nothing and means one group of all replicas.
class Groups {
 public:
  Groups() = default;
  // {{0, 1}, {2, 3}}: each list is a group. The constructor accepts any lists; `fault` tells whether they are a
  // partition.
  Groups(std::initializer_list<std::vector<int>> members) : Groups(std::vector<std::vector<int>>(members)) {}
  Groups(std::vector<std::vector<int>> members) : members_{std::move(members)} {  // NOLINT: implicit on purpose
    list();
  }

  // True if all replicas are in one group.
  bool everybody() const { return members_.size() <= 1; }
  // The same groups with all members listed. The functions below need that.
  template <class = void>
  Groups over(int replicas) const;
  // Says why this is no partition of `replicas` replicas; empty if it is one.
  template <class = void>
  std::string fault(int replicas) const;

  int count() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members(int group) const { return members_[static_cast<std::size_t>(group)]; }
  int size(int group) const { return static_cast<int>(members(group).size()); }
  bool equal_sizes() const {
    return std::all_of(members_.begin(), members_.end(), [&](const auto& group) { return group.size() == members_[0].size(); });
  }
  int group_of(int replica) const { return group_of_[static_cast<std::size_t>(replica)]; }
  int position(int replica) const { return place(replica) - begin(group_of(replica)); }
  int place(int replica) const { return place_of_[static_cast<std::size_t>(replica)]; }
  int replica_at(int place) const { return replicas_[static_cast<std::size_t>(place)]; }
  int begin(int group) const { return begins_[static_cast<std::size_t>(group)]; }  // the first place of the group

  // "[0, 1], [2, 3]", or "all replicas"
  template <class = void>
  std::string text() const;
  template <class V>
  void describe(V& v) const {
    v("members", members_);
  }
  friend bool operator==(const Groups& a, const Groups& b) { return a.members_ == b.members_; }

 private:
  // Orders the groups. If they are a partition, fills the tables by replica and place.
  template <class = void>
  void list();

  std::vector<std::vector<int>> members_;
  std::vector<int> group_of_, place_of_;  // by replica
  std::vector<int> replicas_;             // by place
  std::vector<int> begins_;               // by group
};

template <class>
Groups Groups::over(int replicas) const {
  if (!members_.empty()) return *this;
  std::vector<int> all;
  for (int replica = 0; replica < replicas; ++replica) all.push_back(replica);
  return Groups{std::vector<std::vector<int>>{std::move(all)}};
}

template <class>
std::string Groups::fault(int replicas) const {
  std::vector<int> seen(static_cast<std::size_t>(replicas), 0);
  for (const auto& group : members_) {
    if (group.empty()) return "a group has no members";
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::string replica = std::to_string(group[i]);
      if (group[i] < 0 || group[i] >= replicas) return "there is no replica " + replica + ", only 0 to " + std::to_string(replicas - 1);
      if (seen[static_cast<std::size_t>(group[i])]++) return "replica " + replica + " is named twice";
      if (i > 0 && group[i] < group[i - 1]) return "replica " + replica + " is named after " + std::to_string(group[i - 1]) + ": members ascend";
    }
  }
  const auto missing = std::find(seen.begin(), seen.end(), 0);
  if (members_.empty() || missing == seen.end()) return {};
  return "replica " + std::to_string(missing - seen.begin()) + " is in no group";
}

template <class>
std::string Groups::text() const {
  if (members_.empty()) return "all replicas";
  std::string text;
  for (const auto& group : members_) {
    text += text.empty() ? "[" : ", [";
    for (std::size_t i = 0; i < group.size(); ++i) text += (i ? ", " : "") + std::to_string(group[i]);
    text += "]";
  }
  return text;
}

template <class>
void Groups::list() {
  std::sort(members_.begin(), members_.end());
  std::size_t replicas = 0;
  for (const auto& group : members_) replicas += group.size();
  if (!fault(static_cast<int>(replicas)).empty()) return;
  group_of_.resize(replicas);
  place_of_.resize(replicas);
  for (std::size_t g = 0; g < members_.size(); ++g) {
    begins_.push_back(static_cast<int>(replicas_.size()));
    for (const int replica : members_[g]) {
      group_of_[static_cast<std::size_t>(replica)] = static_cast<int>(g);
      place_of_[static_cast<std::size_t>(replica)] = static_cast<int>(replicas_.size());
      replicas_.push_back(replica);
    }
  }
}

namespace detail {
inline void require_grid(int replicas, int columns, Location where) {
  if (columns < 1 || replicas < 1 || replicas % columns != 0)
    throw BuildError{std::to_string(replicas) + " replicas were asked to be a grid of " + std::to_string(columns) + " columns at " + where.text() +
                     ": make the number of replicas a multiple of the columns"};
}
}  // namespace detail

// Arranges the replicas as a grid, row by row. Replica r is in row r / columns and column r % columns. Each row is a
// group.
// Throws BuildError unless `columns` divides `replicas`.
template <class = void>
Groups group_rows(int replicas, int columns, std::source_location where = std::source_location::current()) {
  detail::require_grid(replicas, columns, where);
  std::vector<std::vector<int>> rows(static_cast<std::size_t>(replicas / columns));
  for (int replica = 0; replica < replicas; ++replica) rows[static_cast<std::size_t>(replica / columns)].push_back(replica);
  return Groups{std::move(rows)};
}
// The columns of the same grid as groups. Throws BuildError unless `columns` divides `replicas`.
template <class = void>
Groups group_columns(int replicas, int columns, std::source_location where = std::source_location::current()) {
  detail::require_grid(replicas, columns, where);
  std::vector<std::vector<int>> all(static_cast<std::size_t>(columns));
  for (int replica = 0; replica < replicas; ++replica) all[static_cast<std::size_t>(replica % columns)].push_back(replica);
  return Groups{std::move(all)};
}

}  // namespace replicator
