// SPDX-License-Identifier: Apache-2.0
// Support for jobs started by a PMIx launcher (mpirun, prterun, srun). Including this header registers it.
#pragma once

#include <pmix.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <replicator/core/deadline_wait.hpp>
#include <replicator/core/error.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/token_authentication.hpp>
#include <replicator/job/trust.hpp>
#include <replicator/job/wire/tcp.hpp>

namespace replicator::detail::transport {

namespace detail {

inline void check_pmix(pmix_status_t status, const char* what) {
  if (status != PMIX_SUCCESS)
    throw CommunicationError{std::string{"pmix: "} + what + ": " + PMIx_Error_string(status) +
                                 "; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT can be set instead",
                             -1};
}

// A connection to the launcher.
class PmixSession {
 public:
  PmixSession() { check_pmix(PMIx_Init(&self_, nullptr, 0), "reaching the launcher"); }
  PmixSession(const PmixSession&) = delete;
  PmixSession& operator=(const PmixSession&) = delete;
  ~PmixSession() { PMIx_Finalize(nullptr, 0); }

  int rank() const { return static_cast<int>(self_.rank); }
  std::string job() const { return self_.nspace; }
  int size() const {
    const auto value = get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, "asking for the number of processes");
    return static_cast<int>(value->data.uint32);
  }
  bool on_one_host() const {
    const auto here = get(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, "asking for the number of processes of this host");
    return static_cast<int>(here->data.uint32) == size();
  }
  void publish(const char* key, const std::string& text) const {
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = const_cast<char*>(text.c_str());  // it is copied
    check_pmix(PMIx_Put(PMIX_GLOBAL, key, &value), "publishing the address and the token of process 0");
    check_pmix(PMIx_Commit(), "publishing the address and the token of process 0");
  }
  // Waits for all processes; afterwards their published values can be read. Throws CommunicationError where some do not
  // come within `deadline`. It cannot name them, because the launcher does not report them.
  void fence(std::chrono::milliseconds deadline) const {
    auto fence = std::make_shared<Fence>(self_);
    auto kept = std::make_unique<std::shared_ptr<Fence>>(fence);  // kept until the launcher calls back
    const auto begun = PMIx_Fence_nb(&fence->all, 1, &fence->collect, 1, &Fence::finished, kept.get());
    if (begun == PMIX_OPERATION_SUCCEEDED) return;  // completed at once, without a callback
    check_pmix(begun, "waiting for the other processes");
    kept.release();
    const std::string whom = "rank " + std::to_string(rank()) + " waits for the other " + std::to_string(size() - 1) +
                             " process(es) that the launcher (PMIx) started: each must make a Replicator, too";
    if (!fence->wait({deadline, JobOptions{}.report_after}, [&] { std::fprintf(stderr, "replicator: %s\n", whom.c_str()); }))
      throw CommunicationError{whom + "; not all have done so within " + seconds_text(deadline) +
                                   " (--connect-deadline): is one of them another program, or was it stopped before?",
                               -1};
    check_pmix(*fence->status, "waiting for the other processes");
  }
  std::string published(std::uint32_t rank, const char* key) const {
    const auto value = get(rank, key, "asking for the address and the token of process 0");
    return value->type == PMIX_STRING ? value->data.string : "";
  }

 private:
  struct Fence {
    explicit Fence(const pmix_proc_t& self) : all{self} {
      all.rank = PMIX_RANK_WILDCARD;
      std::strncpy(collect.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
      collect.value.type = PMIX_BOOL;
      collect.value.data.flag = true;
    }
    static void finished(pmix_status_t status, void* kept) {
      const std::unique_ptr<std::shared_ptr<Fence>> fence{static_cast<std::shared_ptr<Fence>*>(kept)};
      const std::lock_guard lock{(*fence)->mutex};
      (*fence)->status = status;
      (*fence)->changed.notify_all();
    }
    template <class Tell>
    bool wait(const WaitLimits& limits, Tell tell) {
      std::unique_lock lock{mutex};
      return DeadlineWait{limits}.wait(
          changed, lock, [&] { return status.has_value(); }, tell);
    }

    pmix_proc_t all;
    pmix_info_t collect{};
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<pmix_status_t> status;
  };
  struct Release {
    void operator()(pmix_value_t* value) const {
      if (value->type == PMIX_STRING) std::free(value->data.string);
      std::free(value);
    }
  };
  std::unique_ptr<pmix_value_t, Release> get(std::uint32_t rank, const char* key, const char* what) const {
    pmix_proc_t process = self_;
    process.rank = rank;
    pmix_value_t* value = nullptr;
    check_pmix(PMIx_Get(&process, key, nullptr, 0, &value), what);
    return std::unique_ptr<pmix_value_t, Release>{value};
  }

  pmix_proc_t self_{};
};

}  // namespace detail

// Takes rank and size of this process from the launcher. Process 0 listens on a free port, makes a job token, and publishes
// both; the launcher hands them to the processes of the job only. Waits for all of these, at most for `deadline`. Throws
// CommunicationError.
inline ProcessEnvironment environment_from_pmix(const std::string& interface = {}, std::chrono::milliseconds deadline = std::chrono::seconds{60}) {
  constexpr const char* key = "replicator.address";
  constexpr const char* token_key = "replicator.token";
  const detail::PmixSession session;
  ProcessEnvironment result;
  result.rank = session.rank();
  result.world_size = session.size();
  result.job_name = session.job();
  if (result.world_size == 1) return result;
  if (result.rank == 0) {
    result.interface = interface;
    result.job_token = detail::random_token();
    result.master_address = interface.empty() && session.on_one_host() ? "127.0.0.1" : detail::own_addresses(interface);
    result.listener = std::make_shared<FileDescriptor>(detail::listen_on(0, detail::listening_address(result), result.rank));
    session.publish(token_key, result.job_token);
    session.publish(key, std::to_string(detail::port_of(result.listener->get())) + ":" + result.master_address);
  }
  session.fence(deadline);
  const auto text = session.published(0, key);
  const auto colon = text.find(':');
  result.master_port = static_cast<std::uint16_t>(
      detail::number_variable("replicator.address (of PMIx)", text.substr(0, colon), 1, 65535));
  result.master_address = text.substr(colon + 1);
  result.job_token = session.published(0, token_key);
  return result;
}

inline constexpr Launcher pmix_launcher{
    "pmix", [] { return detail::variable("PMIX_NAMESPACE") && detail::variable("PMIX_RANK"); }, environment_from_pmix};

// Registers the launcher for find_environment() in every program that includes this header.
inline const bool pmix_is_known = (launcher_slot.store(&pmix_launcher), true);

}  // namespace replicator::detail::transport
