// SPDX-License-Identifier: Apache-2.0
// The code of job_sequence.hpp: ElasticJob continues with the survivors when it loses processes, and admits restarted processes.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/devices/thread_without_signals.hpp>
#include <replicator/job/elastic/admission_client.hpp>
#include <replicator/job/elastic/admission_offer.hpp>
#include <replicator/job/elastic/admission_server.hpp>
#include <replicator/job/elastic/claim_text.hpp>
#include <replicator/job/elastic/job_sequence.hpp>
#include <replicator/job/elastic/regroup.hpp>
#include <replicator/job/etcd/directory.hpp>
#include <replicator/job/job.hpp>
#include <replicator/job/job_inline.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/rendezvous.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace replicator::detail::transport {

// The thread makes the next job at once after a loss.
class ElasticJob final : public JobSequence {
 public:
  ElasticJob(const ProcessEnvironment& environment, const JobOptions& options, Admission admission = {}, std::string arbiter = {});
  ~ElasticJob() override {
    {
      const std::scoped_lock lock{mutex_};
      stop_ = true;
    }
    wake();
    if (thread_.joinable()) thread_.join();
  }

  std::shared_ptr<Job> job() const override {
    const std::scoped_lock lock{mutex_};
    return job_;
  }
  std::shared_ptr<Job> after(const Job& before) override {
    std::unique_lock lock{mutex_};
    if (job_.get() == &before && !before.aborted()) meets_ = true;
    wake();
    changed_.wait(lock, [&] { return end_ || job_.get() != &before; });
    if (job_.get() == &before) std::rethrow_exception(end_);
    return job_;
  }

  bool outside() const override { return applicant_.has_value(); }
  detail::Bytes enter(const detail::Bytes& wish) override;

  bool somebody_waits() const override { return waits_.load(std::memory_order_relaxed); }
  std::optional<AdmissionOffer> hand_over(const std::function<bool(const detail::Bytes&)>& fits, const std::function<detail::Bytes()>& state) override;
  bool decide(const std::function<std::optional<AdmissionOffer>()>& agree) override {
    const Deciding deciding{*this};
    auto offer = agree();
    const std::scoped_lock lock{mutex_};
    expected_ = std::move(offer);
    return expected_.has_value();
  }
  int newest() const override {
    const std::scoped_lock lock{mutex_};
    return newest_;
  }
  void trust_newest() override {
    const std::scoped_lock lock{mutex_};
    newest_ = newcomer_ = -1;
  }

 private:
  class Deciding {
   public:
    explicit Deciding(ElasticJob& owner) : owner_{owner} { set(true); }
    Deciding(const Deciding&) = delete;
    Deciding& operator=(const Deciding&) = delete;
    ~Deciding() { set(false); }

   private:
    void set(bool value) {
      {
        const std::scoped_lock lock{owner_.mutex_};
        owner_.deciding_ = value;
        if (!value && !owner_.expected_) owner_.request_.reset();
      }
      owner_.wake();
    }
    ElasticJob& owner_;
  };

  void start() {
    wakeup_ = FileDescriptor{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (job_->rank() != 0) environment_.listener.reset();
    admission_server_.emplace(environment_, options_, admission_);
    environment_.listener.reset();
    thread_ = thread_without_signals([this] { follow(); });
  }
  void wake() {
    const std::uint64_t one = 1;
    if (wakeup_) static_cast<void>(!::write(wakeup_.get(), &one, sizeof one));
  }

  // --- the thread ----------------------------------------------------------------------------------------------------------
  void follow();
  // Waits for the end of the job. Returns false when this object is being destroyed.
  bool await_end(Job& job) {
    const auto hook = job.on_abort([this] { wake(); });
    const bool first = job.rank() == 0;
    for (;;) {
      std::vector<pollfd> events{{wakeup_.get(), POLLIN, 0}};
      {
        const std::scoped_lock lock{mutex_};
        if (stop_) return false;
        between_ = meets_ || (job.aborted() && !deciding_);
        if (between_) break;
        if (first) serve(events);
      }
      if (first) tell_process_0();
      ::poll(events.data(), events.size(), first ? 200 : 1000);
      std::uint64_t count;
      static_cast<void>(!::read(wakeup_.get(), &count, sizeof count));
    }
    waits_ = false;
    return true;
  }
  void serve(std::vector<pollfd>& events) {
    admission_server_->open();
    if (environment_.directory && admission_server_->port() != 0) tell_directory();
    admission_server_->serve(regroup_->survivors());
    admission_server_->watch(events);
    if (request_) request_->beat(detail::RendezvousClock::now(), options_);
    waits_ = admission_server_->somebody_is_ready();
  }
  // Enters where this process listens, so that processes that come back find the job. Returns at once.
  void tell_directory() {
    try {
      const auto& survivors = regroup_->survivors();
      const auto number = survivors.epochs().latest() + 1;
      if (told_.port != admission_server_->port() || told_.number != number)
        told_ = {detail::job_of_secret(survivors.secret()), number, admission_server_->port(), detail::own_addresses_of(environment_)};
      environment_.directory->publish(told_);
    } catch (const Error&) {  // the interface is gone, or there is no thread: it tries again
      return;
    }
    if (environment_.directory->overtaken() && !std::exchange(complained_, true))
      detail::WaitReport::say("another job has this name in " + environment_.directory->text() + ", so processes that come back will not find this one");
  }
  // Process 0 may have been restarted before its loss was known. Then it waits for a job to begin, so tell it that one
  // runs.
  void tell_process_0() {
    const auto began = detail::RendezvousClock::now();
    if (!regroup_->survivors().gone(0) || environment_.master_port == 0 || began < next_telling_) return;
    try {
      detail::RendezvousClient{environment_, options_}.tell_that_it_goes_on(admission_server_->port());
    } catch (const Error&) {  // perhaps of another job
    }
    const auto now = detail::RendezvousClock::now();
    next_telling_ = now + std::chrono::milliseconds{300} + 10 * (now - began);
  }

  std::shared_ptr<Job> next(const Job& job) {
    std::optional<AdmissionOffer> expected;
    std::optional<detail::AdmissionRequest> request;
    {
      const std::scoped_lock lock{mutex_};
      expected = std::exchange(expected_, {});
      request = std::exchange(request_, {});
      meets_ = false;
      if (expected) newcomer_ = expected->process;
    }
    if (expected) regroup_->admit(expected->process, expected->regroup_address, expected->life);
    if (expected && expected->process < environment_.rank) admission_server_->close();  // it may need the port
    if (request && expected) {
      detail::FrameWriter frame{detail::FrameKind::enter};
      request->link.push(regroup_->write(frame).finish());
      request->link.pump_out();
    }
    auto following = met(job.aborted() ? without_lost(job) : regroup_->again());
    if (following->rank() != 0) {
      admission_server_->close();
      if (environment_.directory) environment_.directory->withdraw();
    }
    return following;
  }
  detail::Membership without_lost(const Job& job) {
    const int culprit = job.culprit();
    if (culprit < 0) job.check();
    if (culprit == job.rank()) throw CommunicationError{job.failure() + "; the others go on without it. " + detail::take_in_sentence, culprit};
    return regroup_->without(culprit);
  }
  // The next loss is decided by the majority of this job, once all of it are known to have entered it.
  std::shared_ptr<Job> met(detail::Membership membership) {
    auto job = std::make_shared<Job>(std::move(membership), regroup_->rank(), environment_.interface, options_);
    try {
      job->barrier("epoch " + std::to_string(regroup_->survivors().epochs().latest()));
      regroup_->confirm();
    } catch (const CommunicationError&) {  // the job is aborted, and another one follows
    }
    return job;
  }

  ProcessEnvironment environment_;
  JobOptions options_;
  Admission admission_;
  std::string arbiter_;
  std::optional<detail::AdmissionClient> applicant_;  // while this process is outside
  std::optional<detail::Regroup> regroup_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Job> job_;
  std::exception_ptr end_;  // why no job follows
  bool stop_ = false;
  bool deciding_ = false;
  bool between_ = false;                    // the thread makes the next job
  bool meets_ = false;                      // all have left the job to meet in another one
  std::optional<AdmissionOffer> expected_;  // at the next rendezvous
  std::optional<detail::AdmissionServer> admission_server_;
  std::optional<detail::AdmissionRequest> request_;  // on the first process: who has taken the state
  std::atomic<bool> waits_{false};
  int newcomer_ = -1;  // numbered as at the first rendezvous
  int newest_ = -1;    // its rank in job_
  detail::RendezvousClock::time_point next_telling_{};
  Directory::Entry told_;    // to the directory, last
  bool complained_ = false;  // that another job has the name
  FileDescriptor wakeup_;
  std::thread thread_;
};

inline ElasticJob::ElasticJob(const ProcessEnvironment& environment, const JobOptions& options, Admission admission, std::string arbiter)
    : environment_{environment}, options_{options}, admission_{std::move(admission)}, arbiter_{std::move(arbiter)} {
  if (environment.world_size == 1) {
    job_ = std::make_shared<Job>(environment, options);
    return;
  }
  auto membership = detail::meet_or_find_running_job(environment, options);
  if (membership.going_on) {
    applicant_.emplace(environment, options, admission_.identity, std::move(membership));
    environment_.listener.reset();
    applicant_->ask();
    job_ = std::make_shared<Job>();
    return;
  }
  job_ = std::make_shared<Job>(std::move(membership), environment.rank, environment.interface, options);
  admission_.compare(*job_);
  regroup_.emplace(*job_, environment, options, arbiter_);
  start();
}

inline detail::Bytes ElasticJob::enter(const detail::Bytes& wish) {
  detail::Bytes state;
  regroup_.emplace(applicant_->enter(wish, state, arbiter_));
  job_ = met(regroup_->again());
  newcomer_ = environment_.rank;
  newest_ = regroup_->rank();
  applicant_.reset();
  start();
  return state;
}

inline std::optional<AdmissionOffer> ElasticJob::hand_over(const std::function<bool(const detail::Bytes&)>& fits, const std::function<detail::Bytes()>& state) {
  std::optional<detail::AdmissionRequest> request;
  std::uint64_t life = 0;
  {
    const std::scoped_lock lock{mutex_};
    if (!between_) request = admission_server_->take(fits, regroup_->survivors());
    if (!request) return {};
    life = regroup_->survivors().life(request->who.rank) + 1;
  }
  if (!detail::hand_over(*request, state(), options_, [job = job()] { return job->aborted(); })) {
    detail::WaitReport::say("not taken in: " + request->name() + " did not take what it was given");
    return {};
  }
  const std::scoped_lock lock{mutex_};
  AdmissionOffer offer{static_cast<int>(request->who.rank), life, request->regroup_address, request->name()};
  request_ = std::move(request);
  return offer;
}

inline void ElasticJob::follow() {
  try {
    for (auto job = this->job(); await_end(*job);) {
      job = next(*job);
      const std::scoped_lock lock{mutex_};
      job_ = job;
      newest_ = regroup_->rank_of(newcomer_);
      between_ = false;
      changed_.notify_all();
    }
  } catch (...) {
    const std::scoped_lock lock{mutex_};
    end_ = std::current_exception();
    if (environment_.directory) environment_.directory->withdraw();
    admission_server_->close();
    changed_.notify_all();
  }
}

template <class>
std::unique_ptr<JobSequence> open_job_sequence(const ProcessEnvironment& environment, const JobOptions& options, Admission admission, std::string arbiter) {
  return std::make_unique<ElasticJob>(environment, options, std::move(admission), std::move(arbiter));
}

}  // namespace replicator::detail::transport
