// SPDX-License-Identifier: Apache-2.0
// Admission: the conditions under which an elastic job admits processes.
#pragma once

#include <functional>
#include <replicator/job/wire/frame.hpp>
#include <string>

namespace replicator::detail::transport {

class Job;  // job/job.hpp

// The conditions for processes that come (back) to an elastic job.
struct Admission {
  detail::Bytes identity = {};  // of this process; describes what must be equal
  // Returns why a process with the identity `theirs`, called `who`, must stay outside; empty where it may come.
  std::function<std::string(const detail::Bytes& theirs, const std::string& who)> objection = [](const auto&, const auto&) { return std::string{}; };
  // Collective over the processes of a job that has just met for the first time. Throws where they do not fit together.
  std::function<void(Job&)> compare = [](Job&) {};
};

}  // namespace replicator::detail::transport
