// SPDX-License-Identifier: Apache-2.0
// Suggests the word that a user probably meant by a mistyped one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::detail {

// The number of letters to insert, delete or replace.
// Source: Wagner and Fischer, "The string-to-string correction problem", 1974.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // distances of the first i letters of `a` to every prefix of `b`
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({diagonal + (a[i - 1] != b[j - 1]), above + 1, row[j - 1] + 1});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// The word nearest to `typed`, the first one on a tie. Empty if every word differs in more than a third of the letters.
template <class Words>
std::string_view nearest_word(std::string_view typed, const Words& words) {
  std::string_view nearest;
  std::size_t best = typed.size() / 3 + 1;
  for (const std::string_view word : words)
    if (const auto distance = edit_distance(typed, word); distance < best) {
      best = distance;
      nearest = word;
    }
  return nearest;
}

}  // namespace replicator::detail
