// SPDX-License-Identifier: Apache-2.0
// Claims of epochs as an arbiter keeps them: a name and a text that people can read.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <replicator/core/error.hpp>
#include <replicator/core/sha256.hpp>
#include <replicator/job/survivors.hpp>
#include <sstream>
#include <string>
#include <string_view>

namespace replicator::detail::transport::detail {

// `secret`: known only to the processes of this job. Claims are named by its hash: job-5f3a...-epoch-2.
inline std::string job_of_secret(std::uint64_t secret) {
  Sha256 hash;
  hash.update(std::to_string(secret));
  return "job-" + hash.text().substr(0, 16);
}
inline std::string claim_name(std::uint64_t secret, std::uint64_t number) { return job_of_secret(secret) + "-epoch-" + std::to_string(number); }

inline constexpr std::string_view claimed_by = "taken by ", lives_of_claim = "lives of its processes:";
inline std::string claim_title(std::uint64_t number) { return "epoch " + std::to_string(number) + " of an elastic job"; }

//   epoch 2 of an elastic job
//   taken by process 0 (pid 4711 on host-a)
//   lives of its processes: 0 0 -
inline std::string claim_text(const Claim& claim) {
  std::string result = claim_title(claim.epoch.number) + "\n" + std::string{claimed_by} + claim.by + "\n" + std::string{lives_of_claim};
  for (const auto life : claim.epoch.lives) result += " " + (life == Epoch::absent ? "-" : std::to_string(life));
  return result + "\n";
}
// The claim that claim_text() wrote. Throws CommunicationError for any other text; `where` names it.
inline Claim read_claim(const std::string& text, std::uint64_t number, const std::string& where) {
  std::istringstream lines{text};
  Claim result{{number, {}}, {}};
  std::string title, by, lives, life;
  std::getline(lines, title);
  std::getline(lines, by);
  std::getline(lines, lives);
  if (title != claim_title(number) || !by.starts_with(claimed_by) || !lives.starts_with(lives_of_claim) || !text.ends_with('\n'))
    throw CommunicationError{where + " is no claim of an elastic job: has somebody changed it?", -1};
  result.by = by.substr(claimed_by.size());
  std::istringstream words{lives.substr(lives_of_claim.size())};
  while (words >> life) result.epoch.lives.push_back(life == "-" ? Epoch::absent : std::strtoull(life.c_str(), nullptr, 10));
  return result;
}

}  // namespace replicator::detail::transport::detail
