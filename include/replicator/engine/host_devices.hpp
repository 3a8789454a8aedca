// SPDX-License-Identifier: Apache-2.0
// HostDevices: one thread for each device of this process. An error on one device releases all others.
#pragma once

#include <exception>
#include <functional>

#include <replicator/core/error.hpp>
#include <replicator/core/scoped_value.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/engine/failure.hpp>
#include <replicator/engine/host_communicators.hpp>
#include <replicator/engine/see/hang_report.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/runtime/device_threads.hpp>

namespace replicator::detail {

class HostDevices {
 public:
  // All arguments outlive this object.
  HostDevices(const Deployment& deployment, const HostCommunicators& communicators, HangReport& hang_report, Failure& failure)
      : deployment_{deployment}, communicators_{communicators}, hang_report_{hang_report}, failure_{failure}, threads_{static_cast<int>(deployment.devices.size())} {}

  int count() const { return threads_.devices(); }
  // True while the devices work. May be called by the threads of the devices and by the thread that called run().
  bool busy() const { return busy_; }

  // Calls work(device) in the thread of every device, in the environment of kernels. An error on one device releases
  // all others, and every later call throws it. The error of a failed wait also names the collective at which this
  // process was.
  void run(const std::function<void(int)>& work) {
    const ScopedValue busy{busy_, true};
    try {
      threads_.run(
          [&](int device) {
            const cpu::KernelEnvironment environment{deployment_.threads_per_device};
            work(device);
          },
          [this](const std::exception_ptr& error) {
            report_hang(error);
            failure_.release(error);
          });
    } catch (const CommunicationError& error) {
      failure_.keep(std::make_exception_ptr(CommunicationError{hang_report_.with_place(error.what()), error.culprit()}));
      failure_.answer();
    } catch (...) {
      failure_.keep(std::current_exception());
      throw;
    }
  }

 private:
  // Only in a job of one process: in a job of several, each process reports a hang when the job is aborted.
  void report_hang(const std::exception_ptr& error) {
    if (!communicators_.in_process()) return;
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError&) {
      hang_report_.failed();
    } catch (...) {
    }
  }

  const Deployment& deployment_;
  const HostCommunicators& communicators_;
  HangReport& hang_report_;
  Failure& failure_;
  bool busy_ = false;
  DeviceThreads threads_;
};

}  // namespace replicator::detail
