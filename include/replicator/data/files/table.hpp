// SPDX-License-Identifier: Apache-2.0
// A source over anything that has a size and items by number.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/data/index.hpp>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace replicator::data {

// The data behind a TableSource. It has `size()` items; `table[i]` creates item i, from any thread.
template <class T>
concept Table = requires(const T& table, std::int64_t item) {
  { table.size() } -> std::convertible_to<std::int64_t>;
  table[item];
};

// A table and the order in which to read it. shuffle(), shard(), epochs() and take() apply, and seeking costs nothing.
// Copies share the table, so a source made outside of the input function serves all replicas.
template <Table T>
class TableSource {
 public:
  // Throws DataError for an empty table. `name` (of the file) is for errors.
  explicit TableSource(T table, std::string name = {})
      : table_{std::make_shared<const T>(std::move(table))}, index_{static_cast<std::int64_t>(table_->size())}, name_{std::move(name)} {
    if (index_.size() < 1) throw DataError{(name_.empty() ? "the table" : name_) + ": it has no elements; an input needs at least one"};
  }
  TableSource(std::shared_ptr<const T> table, Index index) : table_{std::move(table)}, index_{std::move(index)} {}

  // The item at a position of this replica's order.
  auto operator()(std::int64_t position) const { return (*table_)[index_(position).item]; }
  std::int64_t size() const { return index_.size(); }
  const std::shared_ptr<const T>& table() const { return table_; }
  Index& index() { return index_; }
  const Index& index() const { return index_; }
  const std::string& name() const { return name_; }  // of the file; empty if there is none

 private:
  std::shared_ptr<const T> table_;
  Index index_;
  std::string name_;
};

namespace detail {

template <class T>
std::tuple<T> as_tuple(T one) {
  return {std::move(one)};
}
template <class... T>
std::tuple<T...> as_tuple(std::tuple<T...> several) {
  return several;
}

// A table with item i of all tables, side by side.
template <Table... T>
struct Zipped {
  std::tuple<std::shared_ptr<const T>...> tables;

  std::int64_t size() const { return std::get<0>(tables)->size(); }
  auto operator[](std::int64_t item) const {
    return std::apply([&](const auto&... table) { return std::tuple_cat(as_tuple((*table)[item])...); }, tables);
  }
};

}  // namespace detail

// Joins several sources of the same size, for example pictures and labels from two files. Elements are tuples of all
// components. The orders of the sources are dropped: apply shuffle() and shard() to the result.
// Throws BuildError that names both sources if the sizes differ.
template <Table T, Table... More>
auto zip(const TableSource<T>& first, const TableSource<More>&... more) {
  const std::int64_t sizes[] = {first.size(), more.size()...};
  const std::string names[] = {first.name(), more.name()...};
  const auto text = [&](std::size_t i) {
    return "source " + std::to_string(i) + (names[i].empty() ? "" : " (" + names[i] + ")") + " has " + std::to_string(sizes[i]) + " elements";
  };
  for (std::size_t i = 1; i < std::size(sizes); ++i)
    if (sizes[i] != sizes[0]) throw BuildError{"zip: " + text(0) + ", " + text(i) + ": they must belong together"};
  return TableSource<detail::Zipped<T, More...>>{{{first.table(), more.table()...}}};
}

}  // namespace replicator::data
