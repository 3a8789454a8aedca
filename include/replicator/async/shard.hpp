// SPDX-License-Identifier: Apache-2.0
// Shard: the gate of a shard, a readers-writer lock with a staleness bound. Workers read and update the shard's
// variables through it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <replicator/async/staleness.hpp>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/core/error.hpp>

namespace replicator::detail {

// The limits of a wait for work that others do at a shard. Its deadline is 25 % longer than the shard's own, so that
// the more specific error wins.
inline WaitLimits limits_behind_shard(const WaitLimits& shard) { return {shard.deadline + shard.deadline / 4, shard.late}; }

// Updates exclude each other and reads, so a reader sees either all of an update or nothing of it. An update also waits
// until the staleness bound allows it.
class Shard {
 public:
  // The reason why a reader waits.
  struct Held {
    int holder = -1;        // the reader that must finish first; -1: several readers
    bool by_bound = false;  // the holder's values would become staler than the bound
  };
  struct Waiting {
    WaitLimits limits{};
    std::function<void(int reader, const Held&)> tell_late{};
    std::function<void(int reader, const Held&)> fail{};  // called at the deadline; throws
  };

  Shard(int readers, std::optional<std::int64_t> bound, Waiting waiting) : staleness_{readers, bound}, waiting_{std::move(waiting)} {}
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // copy() copies the variables. Throws the error of an abort. Reader -1 makes no update.
  void read(int reader, const std::function<void()>& copy) {
    {
      std::unique_lock lock{mutex_};
      wait(lock, reader, [&]() -> std::optional<Held> {
        if (writer_ < 0) return std::nullopt;
        return Held{writer_, false};
      });
      if (reader >= 0) staleness_.read(reader);
      ++readers_;
    }
    const Finally leave{[&] { --readers_; }, *this};
    copy();
  }
  // apply(n) makes update number n, counted from 0. Throws CommunicationError if the reader has not read since its last
  // update: calls of other processes are checked.
  void update(int reader, const std::function<void(std::int64_t)>& apply) { make_update(reader, apply, true); }
  // For a caller that acts for several readers, and so must not block for one. Returns false, and does nothing, if the
  // staleness bound does not allow the update yet.
  bool try_update(int reader, const std::function<void(std::int64_t)>& apply) { return make_update(reader, apply, false); }
  // Throws the error of the deadline if the bound does not allow an update of the reader.
  void fail_held(int reader) {
    std::unique_lock lock{mutex_};
    const auto holder = staleness_.held_by(reader);
    lock.unlock();
    if (holder) waiting_.fail(reader, {*holder, true});
  }

  // Makes every present and future wait throw the error. Later errors are ignored.
  void abort(std::exception_ptr error) {
    {
      const std::lock_guard lock{mutex_};
      if (!error_) error_ = std::move(error);
    }
    changed_.notify_all();
  }
  Staleness staleness() const {
    const std::lock_guard lock{mutex_};
    return staleness_;
  }

 private:
  struct Finally {
    std::function<void()> change;
    Shard& shard;
    Finally(std::function<void()> what, Shard& owner) : change{std::move(what)}, shard{owner} {}
    Finally(const Finally&) = delete;
    Finally& operator=(const Finally&) = delete;
    ~Finally() {
      {
        const std::lock_guard lock{shard.mutex_};
        change();
      }
      shard.changed_.notify_all();
    }
  };

  bool make_update(int reader, const std::function<void(std::int64_t)>& apply, bool await_others) {
    std::int64_t number = 0;
    {
      std::unique_lock lock{mutex_};
      if (!staleness_.has_read(reader))
        throw CommunicationError{"reader " + std::to_string(reader) + " of a shard sends an update, but has not read the shard since its last one", -1};
      bool held = false;  // by the bound
      wait(lock, reader, [&]() -> std::optional<Held> {
        held = false;
        if (writer_ >= 0 || readers_ > 0) return Held{writer_, false};
        if (const auto holder = staleness_.held_by(reader)) {
          if (await_others) return Held{*holder, true};
          held = true;
        }
        return std::nullopt;
      });
      if (held) return false;
      number = staleness_.updates();
      staleness_.update(reader);
      writer_ = reader;
    }
    const Finally leave{[&] { writer_ = -1; }, *this};
    apply(number);
    return true;
  }
  // Waits until held() returns nothing.
  template <class Predicate>
  void wait(std::unique_lock<std::mutex>& lock, int reader, Predicate held) {
    std::optional<Held> why;
    const auto free = [&] { return error_ || !(why = held()); };
    DeadlineWait wait{waiting_.limits};
    if (!wait.wait(changed_, lock, free, [&] { waiting_.tell_late(reader, *why); })) waiting_.fail(reader, *why);
    if (error_) std::rethrow_exception(error_);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Staleness staleness_;
  Waiting waiting_;
  int readers_ = 0;  // readers that are copying
  int writer_ = -1;  // the reader that is updating; -1: none
  std::exception_ptr error_;
};

}  // namespace replicator::detail
