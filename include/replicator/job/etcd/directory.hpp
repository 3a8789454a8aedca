// SPDX-License-Identifier: Apache-2.0
// Directory: where the first process of a job is found, as a key in an etcd.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/core/printable.hpp>
#include <replicator/devices/thread_without_signals.hpp>
#include <replicator/job/etcd/etcd.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace replicator::detail::transport {

// The key of a job belongs to a lease of its first process, and ends 10 s after that one has died, was stopped or cut off. The next first
// process replaces the key as soon as it knows that it is the first. So the key leads to a process that lives, or that was lost just now:
//
//   /replicator/NAME/first    "gathering 0 29500 10.0.0.1,fd00::1"     process 0 waits for the others
//                             "job-5f3a... 3 41233 10.0.0.2,fd00::2"   a running job, in its third epoch
class Directory {
 public:
  struct Entry {
    std::string run;           // of a running job, without spaces: no other job has it. Empty: process 0 waits for the others
    std::uint64_t number = 0;  // rises with each first process of the run
    std::uint16_t port = 0;
    std::string addresses;  // as in MASTER_ADDR
    bool operator==(const Entry&) const = default;
  };

  // `name`: of the job.
  Directory(const std::string& urls, const std::string& name) : etcd_{urls}, folder_{"/replicator/" + name + "/"} {}
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  // Removes what this process has published. Takes some seconds where the etcd does not answer.
  ~Directory() {
    {
      const std::scoped_lock lock{mutex_};
      stop_ = true;
      wanted_.reset();
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  const detail::Etcd& etcd() const { return etcd_; }
  // All keys of the job begin with it.
  const std::string& folder() const { return folder_; }
  std::string text() const { return "the etcd at " + etcd_.urls() + " (" + key() + ")"; }

  // The latest entry; nothing where there is none. Throws CommunicationError where the etcd does not answer or holds something else.
  std::optional<Entry> look() const {
    const auto held = etcd_.read(key());
    if (!held) return {};
    return read(held->text);
  }
  // Says from now on that this process is the first one. Returns at once: a thread enters it, and keeps it alive.
  void publish(Entry entry) {
    const std::scoped_lock lock{mutex_};
    if (wanted_ == entry && thread_.joinable()) return;
    wanted_ = std::move(entry);
    overtaken_ = false;
    changed_.notify_all();
    if (!thread_.joinable()) thread_ = thread_without_signals([this] { keep(); });
  }
  // Takes back what was published, soon.
  void withdraw() {
    const std::scoped_lock lock{mutex_};
    wanted_.reset();
    overtaken_ = false;
    changed_.notify_all();
  }
  // Whether the key that this process wants belongs to a running job of another run.
  bool overtaken() const {
    const std::scoped_lock lock{mutex_};
    return overtaken_;
  }

  // The text of the key. read() throws CommunicationError for text that write() has not made.
  static std::string write(const Entry& entry) {
    return (entry.run.empty() ? std::string{gathering} : entry.run) + " " + std::to_string(entry.number) + " " + std::to_string(entry.port) + " " + entry.addresses;
  }
  static Entry read(const std::string& text) {
    std::istringstream words{text};
    std::string run, number, port, addresses, more;
    words >> run >> number >> port >> addresses;
    const auto counted = whole_number<std::uint64_t>(number);
    const auto open = whole_number<std::uint16_t>(port, 1);
    if (!counted || !open || addresses.empty() || printable(addresses, addresses.size()) != addresses || words >> more)
      throw CommunicationError{"the key of this job in the etcd holds \"" + printable(text, 200) + "\", which is no address of a job: remove it", -1};
    return {run == gathering ? "" : run, *counted, *open, addresses};
  }

 private:
  static constexpr int lease_seconds = 10;
  static constexpr std::chrono::milliseconds when_kept{3000}, when_not{1000};
  static constexpr std::string_view gathering = "gathering";

  std::string key() const { return folder_ + "first"; }

  enum class Outcome {
    kept,
    older,      // a later first process of this run has the key, or another process 0 that waits
    overtaken,  // a running job of another run has it
    unknown     // the etcd does not answer
  };

  void keep() {
    std::unique_lock lock{mutex_};
    while (!stop_ || lease_ != 0) {
      const auto entry = wanted_;
      lock.unlock();
      const auto outcome = entry ? try_to_enter(*entry) : Outcome::kept;
      if (!entry) end_lease();
      lock.lock();
      const auto news = [&] { return stop_ || wanted_ != entry; };
      if (wanted_ == entry && outcome != Outcome::unknown) overtaken_ = outcome == Outcome::overtaken;
      if (entry) changed_.wait_for(lock, outcome == Outcome::kept ? when_kept : when_not, news);
      else changed_.wait(lock, news);
    }
  }
  Outcome try_to_enter(const Entry& entry) {
    try {
      const auto outcome = enter(entry);
      complained_ = false;
      return outcome;
    } catch (const Error& error) {
      if (!std::exchange(complained_, true)) std::fprintf(stderr, "replicator: other processes may not find this job: %s\n", error.what());
      return Outcome::unknown;
    }
  }
  Outcome enter(const Entry& entry) {
    if (lease_ == 0 || !etcd_.keep_alive(lease_)) lease_ = etcd_.grant(lease_seconds);
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto held = etcd_.read(key());
      const auto text = write(entry);
      if (held && held->lease == lease_ && held->text == text) return Outcome::kept;
      if (held && held->lease != lease_) {
        const auto theirs = read(held->text);
        if (!replaces(entry, theirs)) return theirs.run == entry.run ? Outcome::older : Outcome::overtaken;
      }
      if (etcd_.write_unless_changed(key(), held ? held->revision : 0, text, lease_)) return Outcome::kept;
    }
    throw CommunicationError{"the key of this job in the etcd changes all the time", -1};
  }
  // A running job replaces a process 0 that waits for others, and the first processes before. It replaces no other run.
  static bool replaces(const Entry& mine, const Entry& theirs) {
    return !mine.run.empty() && (theirs.run.empty() || (theirs.run == mine.run && theirs.number < mine.number));
  }
  void end_lease() {
    const auto lease = std::exchange(lease_, 0);
    if (lease == 0 || complained_) return;  // an etcd that does not answer must not hold up the end of the program
    try {
      etcd_.revoke(lease);
    } catch (const Error&) {  // it ends by itself
    }
  }

  detail::Etcd etcd_;
  std::string folder_;
  std::int64_t lease_ = 0;   // of the thread alone; 0: none
  bool complained_ = false;  // of the thread alone: the etcd does not answer
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Entry> wanted_;
  bool overtaken_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace replicator::detail::transport
