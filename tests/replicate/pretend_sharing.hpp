// SPDX-License-Identifier: Apache-2.0
// Memory of pretended devices that other processes can open: an anonymous file (memfd) for each block. Behind the block lies a page
// with what all processes see of it: how many have it open, and the counts of an event.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/devices/device_support.hpp>

#include "pretend_order.hpp"

namespace replicator::test::pretend {

using namespace replicator::detail;

// How often an event was recorded, and how often it has happened.
struct EventCounts {
  std::atomic<std::uint64_t> recorded{0}, happened{0};
};

// A file, mapped by its owner or by another process. Neither copied nor unmapped by itself.
class SharedFile {
 public:
  struct Page {
    std::atomic<int> open;
    EventCounts event;
    std::array<std::atomic<std::uint64_t>, Order::most_queues * Order::most_processes> clock;  // of the event's last record
  };
  // What a handle says.
  struct Name {
    int process, file;
    std::uint64_t bytes;
  };

  SharedFile() = default;
  // Makes a file for so many bytes, which nobody can access before protect().
  explicit SharedFile(std::size_t bytes) : file_{::memfd_create("pretended", MFD_CLOEXEC)}, bytes_{rounded(bytes)} {
    if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes_ + page)) != 0) throw DeviceError{"a pretended device cannot make a file"};
    map();
  }
  // Opens a file of another process. A process cannot open its own, as with CUDA.
  explicit SharedFile(const SharedHandle& handle) {
    Name name{};
    std::memcpy(&name, handle.data(), sizeof name);
    if (name.process == ::getpid()) throw DeviceError{"a process opened a handle of its own"};
    file_ = ::open(("/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file)).c_str(), O_RDWR | O_CLOEXEC);
    struct stat found {};
    if (file_ < 0 || ::fstat(file_, &found) != 0 || static_cast<std::uint64_t>(found.st_size) != name.bytes + page) throw DeviceError{"a handle names nothing that is there"};
    bytes_ = static_cast<std::size_t>(name.bytes);
    map();
    ++state().open;
  }
  SharedHandle handle() const {
    const Name name{::getpid(), file_, bytes_};
    SharedHandle handle{};
    std::memcpy(handle.data(), &name, sizeof name);
    return handle;
  }

  void keep(const Order::Clock& clock) const {
    for (std::size_t i = 0; i < clock.size(); ++i) state().clock.at(i) = clock[i];
  }
  Order::Clock kept() const { return {state().clock.begin(), state().clock.end()}; }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Page& state() const { return *reinterpret_cast<Page*>(data_ + bytes_); }
  bool holds(const std::byte* pointer) const { return pointer >= data_ && pointer <= data_ + bytes_; }
  void protect(int protection) const {
    if (bytes_) ::mprotect(data_, bytes_, protection);
  }
  void unmap() const {
    ::munmap(data_, bytes_ + page);
    ::close(file_);
  }
  void close() const {
    --state().open;
    unmap();
  }

 private:
  static constexpr std::size_t page = 4096;
  static_assert(sizeof(Page) <= page);
  static std::size_t rounded(std::size_t bytes) { return (bytes + page - 1) / page * page; }
  void map() {
    void* const mapped = ::mmap(nullptr, bytes_ + page, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapped == MAP_FAILED) throw DeviceError{"a pretended device cannot map a file"};
    data_ = static_cast<std::byte*>(mapped);
    protect(PROT_NONE);
  }

  int file_ = -1;
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace replicator::test::pretend
