// SPDX-License-Identifier: Apache-2.0
// The code of summary.hpp: lays the table out.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <replicator/replicate/summary.hpp>

namespace replicator {

namespace detail {
// "1,234,567"
inline std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}
}  // namespace detail

template <class>
std::string summary(const Replicator& repl) {
  constexpr std::size_t columns = 6;
  constexpr std::size_t number = 2;  // the column that is aligned to the right
  std::vector<std::array<std::string, columns>> rows{{"variable", "type", "elements", "trained", "kind", "declared at"}};
  std::int64_t elements = 0, trained = 0;
  const auto names = repl.variables();
  for (const auto& name : names) {
    const auto& declared = repl.declaration(name);
    const std::int64_t own = declared.type.shape.elements();
    rows.push_back({name, declared.type.text(), detail::grouped(own), declared.trainable ? "trained" : "-", std::string{name_of(declared.kind)}, declared.where.text()});
    elements += own;
    if (declared.trainable) trained += own;
  }
  std::array<std::size_t, columns> widths{};
  for (const auto& row : rows)
    for (std::size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      text += c == number ? space + row[c] : c + 1 < columns ? row[c] + space
                                                             : row[c];
      text += c + 1 < columns ? "   " : "\n";
    }
  }
  return text + std::to_string(names.size()) + " variable(s) of " + detail::grouped(elements) + " elements, of which " + detail::grouped(trained) + " are trained\n";
}

}  // namespace replicator
