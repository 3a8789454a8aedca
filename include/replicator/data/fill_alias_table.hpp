// SPDX-License-Identifier: Apache-2.0
// The code of alias_table.hpp: fills the table, and draws from it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <replicator/core/error.hpp>
#include <replicator/core/number_text.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/data/alias_table.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

inline double checked_sum(const std::vector<double>& weights) {
  if (weights.size() > 0xFFFFFFFFu) throw BuildError{"sample() of " + std::to_string(weights.size()) + " weights; it can have up to 2^32 - 1"};
  // What each addition rounds away is kept: the error of a plain sum of millions of equal weights would all fall to one item.
  // Source: Kahan, "Further remarks on reducing truncation errors", Communications of the ACM 8(1), 1965.
  double sum = 0, rest = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0) || std::isinf(weights[i]))
      throw BuildError{"sample(): the weight of item " + std::to_string(i) + " is " + replicator::detail::number_text(weights[i]) + "; weights are finite numbers of at least 0"};
    const double more = weights[i] - rest, next = sum + more;
    rest = std::isinf(next) ? 0 : (next - sum) - more;
    sum = next;
  }
  if (!(sum > 0) || std::isinf(sum))
    throw BuildError{"sample(): the sum of " + std::to_string(weights.size()) + " weights is " + replicator::detail::number_text(sum) + "; it must be a finite number above 0"};
  return sum;
}

}  // namespace detail

// Fills up each column that its own item leaves partly empty with an item that has more than a column.
template <class>
void AliasTable::fill(std::vector<std::uint64_t> shares, std::uint64_t height) {
  columns_.resize(shares.size());
  std::vector<std::uint32_t> small, large;
  for (std::size_t i = 0; i < shares.size(); ++i) (shares[i] < height ? small : large).push_back(static_cast<std::uint32_t>(i));
  while (!small.empty()) {
    const std::uint32_t less = small.back(), more = large.back();
    small.pop_back();
    columns_[less] = {shares[less], more};
    shares[more] -= height - shares[less];
    if (shares[more] < height) {
      large.pop_back();
      small.push_back(more);
    }
  }
  for (const std::uint32_t i : large) columns_[i] = {height, i};
}

template <class>
AliasTable::AliasTable(const std::vector<double>& weights) {
  const double sum = detail::checked_sum(weights);
  const std::size_t n = weights.size();
  height_bits_ = 62 - std::bit_width(n - 1);
  const auto height = std::uint64_t{1} << height_bits_;
  std::vector<std::uint64_t> shares(n);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < n; ++i) total += shares[i] = static_cast<std::uint64_t>(weights[i] / sum * static_cast<double>(n) * static_cast<double>(height));
  // What rounding has left over, or taken too much, falls to the largest share, which is at least one height.
  *std::max_element(shares.begin(), shares.end()) += n * height - total;
  fill(std::move(shares), height);
}

template <class>
std::int64_t AliasTable::operator()(std::uint64_t seed, std::int64_t number) const {
  const auto draw = static_cast<std::uint64_t>(number);
  const auto r = philox({static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32), 0, domain},
                        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const auto both = [](std::uint32_t high, std::uint32_t low) { return std::uint64_t{high} << 32 | low; };
  // The high half of a product of 64 bits each, without a type of 128 bits: sizes stay below 2^32.
  const std::uint64_t n = columns_.size();
  const std::uint64_t column = (std::uint64_t{r[0]} * n + (std::uint64_t{r[1]} * n >> 32)) >> 32;
  const Column& found = columns_[column];
  return both(r[2], r[3]) >> (64 - height_bits_) < found.own ? static_cast<std::int64_t>(column) : found.other;
}

template <class>
double AliasTable::probability(std::int64_t item) const {
  const double height = std::ldexp(1.0, height_bits_);
  double heights = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (static_cast<std::int64_t>(i) == item) heights += static_cast<double>(columns_[i].own) / height;
    if (columns_[i].other == item) heights += 1 - static_cast<double>(columns_[i].own) / height;
  }
  return heights / static_cast<double>(columns_.size());
}

}  // namespace replicator::data
