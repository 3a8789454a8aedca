// SPDX-License-Identifier: Apache-2.0
// EtcdArbiter: an arbiter for two equal parts of an elastic job. It is an etcd, with one key for each epoch; whoever creates the key
// has the epoch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/job/elastic/claim_text.hpp>
#include <replicator/job/etcd/directory.hpp>
#include <replicator/job/survivors.hpp>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace replicator::detail::transport::detail {

// An Arbiter, as FolderArbiter is.
class EtcdArbiter {
 public:
  EtcdArbiter(std::shared_ptr<const Directory> directory, std::uint64_t secret) : directory_{std::move(directory)}, secret_{secret} {}

  Claim operator()(const Claim& wanted, const std::function<void()>& beat) const {
    const auto until = RendezvousClock::now() + retry_limit;
    const auto key = key_of(wanted.epoch.number);
    // The answer to a write may be lost on its way. So what counts is what the etcd holds in the end.
    while (RendezvousClock::now() < until) {
      if (retried(until, beat, [&] { return directory_->etcd().write_unless_changed(key, 0, claim_text(wanted)); })) return wanted;
      beat();
      if (const auto held = retried(until, beat, [&] { return directory_->etcd().read(key); })) return claim_of(held->text, wanted.epoch.number);
    }
    throw CommunicationError{"--elastic-arbiter: somebody removes the keys of this job from " + directory_->text(), -1};
  }
  // The claim that holds a number. Throws CommunicationError for a text that is no claim.
  std::optional<Claim> read(std::uint64_t number) const {
    const auto held = retried(
        RendezvousClock::now() + retry_limit, [] {}, [&] { return directory_->etcd().read(key_of(number)); });
    if (!held) return {};
    return claim_of(held->text, number);
  }
  std::string where() const { return "in " + directory_->text() + ": give all processes the same --elastic-arbiter and REPLICATOR_JOB"; }

 private:
  // An etcd takes less to elect another leader.
  static constexpr std::chrono::milliseconds retry_limit{8000}, pause{200};

  // Asks again and again until there is an answer. Each time takes up to 1.4 s, and others wait for a beat meanwhile.
  template <class Ask>
  static std::invoke_result_t<Ask> retried(RendezvousClock::time_point until, const std::function<void()>& beat, const Ask& ask) {
    for (;;) {
      try {
        return ask();
      } catch (const CommunicationError&) {
        if (RendezvousClock::now() + pause >= until) throw;
      }
      beat();
      std::this_thread::sleep_for(pause);
    }
  }
  Claim claim_of(const std::string& text, std::uint64_t number) const { return read_claim(text, number, key_of(number) + " in the etcd"); }
  std::string key_of(std::uint64_t number) const { return directory_->folder() + claim_name(secret_, number); }

  std::shared_ptr<const Directory> directory_;
  std::uint64_t secret_;
};

}  // namespace replicator::detail::transport::detail
