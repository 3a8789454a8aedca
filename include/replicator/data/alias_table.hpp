// SPDX-License-Identifier: Apache-2.0
// Draws items with given probabilities, each draw in constant time. <replicator/replicator.hpp>, or fill_alias_table.hpp, brings the code.
#pragma once

#include <cstdint>
#include <vector>

namespace replicator::data {

// n columns of equal height, in each of which at most two items share: its own one below, another one above. A draw is a
// random column and a random height in it. All numbers are integers, so an item of weight 0 is never drawn, and the
// draws are the same on every machine. Takes 16 bytes for each item.
// Source: Vose, "A linear algorithm for generating random numbers with a given distribution", IEEE Transactions on
// Software Engineering 17(9), 1991.
class AliasTable {
 public:
  // Item i gets the probability weights[i] / sum of weights. The table is off by less than 2^-40 for up to four million
  // items, and by less than 2^-30 for any number.
  // Throws BuildError that names the item for a weight that is negative or not finite, and for weights without a
  // positive, finite sum.
  template <class = void>
  explicit AliasTable(const std::vector<double>& weights);

  std::int64_t size() const { return static_cast<std::int64_t>(columns_.size()); }

  // The item of a draw. It is a function of seed and number alone, and different numbers give independent draws.
  template <class = void>
  std::int64_t operator()(std::uint64_t seed, std::int64_t number) const;

  // The probability of an item, as the table has it. Reads all columns.
  template <class = void>
  double probability(std::int64_t item) const;

 private:
  struct Column {
    std::uint64_t own = 0;   // the height below which the column's own item is drawn
    std::int64_t other = 0;  // the item above
  };

  template <class = void>
  void fill(std::vector<std::uint64_t> shares, std::uint64_t height);

  // Separates these random numbers from others with the same seed.
  static constexpr std::uint32_t domain = 0x73616D70;

  std::vector<Column> columns_;
  int height_bits_ = 0;
};

}  // namespace replicator::data
