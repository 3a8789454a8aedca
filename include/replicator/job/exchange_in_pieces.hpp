// SPDX-License-Identifier: Apache-2.0
// An all-gather of any size, over several exchanges of a job.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail::transport {

// Like Job::exchange, in exchanges of at most `piece` bytes for each process. A frame has a largest size, and a job sends
// no heartbeats while it copies one. All processes know bytes[p], the size of process p's contribution. Throws
// CommunicationError as Job::exchange does, and where a contribution has another size.
inline std::vector<detail::Bytes> exchange_in_pieces(Job& job, std::span<const std::byte> mine, std::span<const std::size_t> bytes, std::string_view what,
                                                     std::size_t piece = std::size_t{1} << 23) {
  std::vector<detail::Bytes> all(bytes.size());
  for (std::size_t p = 0; p < all.size(); ++p) all[p].reserve(bytes[p]);
  const auto slice = [&](std::size_t length, std::size_t from) { return std::min(piece, length - std::min(from, length)); };
  for (std::size_t from = 0; from < *std::max_element(bytes.begin(), bytes.end()); from += piece) {
    const auto parts = job.exchange(mine.subspan(std::min(from, mine.size()), slice(mine.size(), from)), what);
    for (std::size_t p = 0; p < all.size(); ++p) {
      require_contribution(parts[p].size() == slice(bytes[p], from), static_cast<int>(p), from + parts[p].size(), what);
      all[p].insert(all[p].end(), parts[p].begin(), parts[p].end());
    }
  }
  return all;
}

}  // namespace replicator::detail::transport
