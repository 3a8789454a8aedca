// SPDX-License-Identifier: Apache-2.0
// Queue: runs a program's work, either at once on host memory or in order in a queue (stream) of a device with its own
// memory.
#pragma once

#include <cstring>
#include <utility>

#include <replicator/collectives/reduction.hpp>
#include <replicator/devices/device_support.hpp>

namespace replicator::detail {

// Captured work, which a queue can replay. May be empty.
class CapturedWork {
 public:
  CapturedWork() = default;
  CapturedWork(const CaptureSupport& support, int index, void* handle) : support_{&support}, index_{index}, handle_{handle} {}
  CapturedWork(CapturedWork&& other) noexcept { *this = std::move(other); }
  CapturedWork& operator=(CapturedWork&& other) noexcept {
    std::swap(support_, other.support_);
    std::swap(index_, other.index_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CapturedWork() {
    if (support_) support_->release(index_, handle_);
  }
  void* handle() const { return handle_; }
  bool empty() const { return support_ == nullptr; }

 private:
  const CaptureSupport* support_ = nullptr;
  int index_ = 0;
  void* handle_ = nullptr;
};

class Queue {
 public:
  Queue() = default;
  Queue(const DeviceSupport& support, int index) : index_{index} {
    if (support.runs_on_host()) return;
    handle_ = support.make_queue(index);
    support_ = &support;
  }
  Queue(Queue&& other) noexcept { *this = std::move(other); }
  Queue& operator=(Queue&& other) noexcept {
    std::swap(support_, other.support_);
    std::swap(index_, other.index_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Queue() {
    if (support_) support_->destroy_queue(index_, handle_);
  }

  // The handle into which kernels are launched; null on the host.
  void* handle() const { return handle_; }
  void enter() const {
    if (support_) support_->enter(index_);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
    if (bytes == 0) return;
    if (support_) support_->copy(handle_, to, from, bytes);
    else std::memcpy(to, from, bytes);
  }
  void fold(DType dtype, Reduction reduction, std::byte* into, const std::byte* from, std::int64_t elements) const {
    if (support_) support_->fold(handle_, dtype, reduction, into, into, from, elements);
    else collectives::combine(dtype, reduction, into, into, from, elements);
  }
  // Call it before the host reads memory that was copied to it, or changes memory that was copied from it.
  void synchronise() const {
    if (support_) support_->synchronise(handle_);
  }

  // The device hangs, see DeviceSupport.
  void abandon() const { support_->abandon(); }
  bool abandoned() const { return support_->abandoned(); }

  bool can_capture() const { return support_ && support_->capture; }
  // Captures the work that work() queues, without running it. Throws any error of work(), and DeviceError if something
  // cannot be captured. The queue is then as before.
  template <class Work>
  CapturedWork capture(Work&& work) const {
    const auto& how = *support_->capture;
    how.begin(handle_);
    try {
      work();
    } catch (...) {
      how.abandon(handle_);
      throw;
    }
    return {how, index_, how.end(handle_)};
  }
  void replay(const CapturedWork& work) const { support_->capture->replay(handle_, work.handle()); }

 private:
  const DeviceSupport* support_ = nullptr;
  int index_ = 0;
  void* handle_ = nullptr;
};

// Event: marks a point in a queue's work.
class Event {
 public:
  // For a kind of device that has queues.
  Event(const DeviceSupport& support, int index) : staging_{support.staging}, index_{index}, handle_{staging_->make_event(index)} {}
  Event() = default;
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept {
    std::swap(staging_, other.staging_);
    std::swap(index_, other.index_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event() {
    if (staging_) staging_->destroy_event(index_, handle_);
  }
  void record(const Queue& queue) const { staging_->record(queue.handle(), handle_); }
  void record(void* queue) const { staging_->record(queue, handle_); }
  // Work that is queued from now on comes after the event.
  void precede(const Queue& queue) const { staging_->wait(queue.handle(), handle_); }
  void precede(void* queue) const { staging_->wait(queue, handle_); }
  // The host waits for the event.
  void await() const { staging_->await(handle_); }
  // True if the event has happened. Returns at once.
  bool happened() const { return staging_->happened(handle_); }

 private:
  const StagingSupport* staging_ = nullptr;
  int index_ = 0;
  void* handle_ = nullptr;
};

}  // namespace replicator::detail
