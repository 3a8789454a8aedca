// SPDX-License-Identifier: Apache-2.0
// Collectives in device memory that other processes open: the bits are those of host memory, nothing is freed under a reader, and
// nobody hangs if a process dies.
#include <signal.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/runtime/queue.hpp>
#include <replicator/transport/check_shared_devices.hpp>
#include <replicator/transport/in_process_devices.hpp>
#include <replicator/transport/shared_devices.hpp>

#include "../support/errors.hpp"
#include "../transport/jobs.hpp"
#include "pretend_device.hpp"
#include "received.hpp"

namespace test_shared_devices {

using namespace replicator;
using namespace replicator::detail;
using replicator::test::Asked;
using replicator::test::error_of;
using replicator::test::of_all_kinds;
using replicator::test::received_on_device;
using replicator::test::received_on_host;
using replicator::test::soon;
using replicator::test::spec_of;
namespace pretend = replicator::test::pretend;
namespace cl = replicator::detail::collectives;
namespace rt = replicator::detail::transport;

namespace {

using Devices = test::PretendGpus<>;

const std::string reads_wrong_bytes = " than are there: an IOMMU or the access control of PCIe bridges (ACS) stands between them, and is to be switched off";

// The devices of a process's ranks: cuda:1, cuda:2, ... of process 1, so that processes share some of them.
std::vector<int> indices_of(rt::Job& job, const std::vector<int>& process_of_rank) {
  std::vector<int> indices;
  for (const int process : process_of_rank)
    if (process == job.rank()) indices.push_back((job.rank() + static_cast<int>(indices.size())) % pretend::devices);
  return indices;
}

// Calls work(rank, index) in a thread for each rank of this process; throws the first error.
template <class Work>
void on_ranks(const rt::SharedDeviceGroup& group, const std::vector<int>& indices, Work work) {
  const auto ranks = group.local_ranks();
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t place = 0; place < ranks.size(); ++place)
    threads.emplace_back([&, place] {
      try {
        work(ranks[place], indices[place]);
      } catch (...) {
        errors[place] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

std::vector<Asked> all_reduces(const cl::ReplicaBlocks& blocks) {
  std::vector<Asked> all;
  for (const auto name : cl::all_reduce_names) {
    auto spec = spec_of(cl::Kind::all_reduce, 101, static_cast<std::uint32_t>(all.size()));
    spec.reduction = all.size() % 2 ? Reduction::mean : Reduction::sum;
    spec.any_order = true;
    all.push_back({spec, cl::all_reduce_by_name({std::string{name}}, blocks)});
  }
  return all;
}

// "same" where this process's ranks receive the host's bits, and nothing is left or was freed too early.
std::string compare(rt::Job& job, const std::vector<int>& process_of_rank, const std::vector<Asked>& all) {
  const Devices devices;
  pretend::order.set_process(job.rank());
  std::string found = "same";
  const auto expected = received_on_host(all);
  const auto indices = indices_of(job, process_of_rank);
  {
    const auto& support = support_of(DeviceKind::cuda);
    if (auto reason = rt::why_apart(support, "cuda", indices); !reason.empty()) return reason;
    rt::SharedDeviceGroup group{job, support, process_of_rank, indices};
    if (auto reason = rt::why_not_shared(job, group, "cuda"); !reason.empty()) return reason;
    on_ranks(group, indices, [&](int rank, int index) {
      const auto mine = received_on_device(all, rank, index, cl::make_communicator(rt::SharedDevices{group, rank}, all[0].schedule.blocks));
      if (mine != expected[static_cast<std::size_t>(rank)]) found = "other bits";
    });
    job.barrier();
  }
  if (devices.in_use() != 0) found += ", " + std::to_string(devices.in_use()) + " things are left";
  if (pretend::released_early != 0) found += ", memory was freed too early";
  return found;
}

// A job of two processes with a device each; body(job, group).
template <class Body>
std::vector<test::ProcessResult> with_two(Body body, const rt::JobOptions& options = test::quick_options()) {
  return test::run_job(
      2,
      [&](rt::Job& job) {
        const Devices devices;
        rt::SharedDeviceGroup group{job, support_of(DeviceKind::cuda), {0, 1}, {job.rank()}};
        return body(job, group);
      },
      options);
}

}  // namespace

TEST_CASE("devices of several processes have the host's bits by every schedule of an all-reduce, and in collectives of all kinds") {
  for (const auto& process_of_rank : std::vector<std::vector<int>>{{0, 1}, {0, 1, 2}, {0, 0, 1}, {0, 1, 1, 2}}) {
    const auto ranks = static_cast<int>(process_of_rank.size());
    for (const int replicas : {ranks, 2 * ranks + 1}) {
      const cl::ReplicaBlocks blocks{replicas, ranks};
      for (const auto& all : {all_reduces(blocks), of_all_kinds(cl::ReplicaBlocks{ranks % 2 ? 2 * ranks : ranks, ranks}, 37)}) {
        const auto results = test::run_job(process_of_rank.back() + 1, [&](rt::Job& job) { return compare(job, process_of_rank, all); });
        INFO(ranks << " ranks: " << test::describe(results));
        for (const auto& result : results) CHECK(result.text == "same");
      }
    }
  }
}

TEST_CASE("a handle that cannot be opened, and memory that is read wrongly, are found by all processes before anything is reduced") {
  const auto reasons = [](auto plant) {
    const auto results = with_two([&](rt::Job& job, rt::SharedDeviceGroup& group) {
      plant(job);
      return rt::why_not_shared(job, group, "cuda");
    });
    INFO(test::describe(results));
    CHECK(results[0].exit_code == 0);
    CHECK(results[0].text == results[1].text);
    return results[0].text;
  };
  CHECK_THAT(reasons([](rt::Job& job) { pretend::unshared = job.rank() == 1 ? "cuda:1 cannot open it" : ""; }),
             Catch::StartsWith("cuda:1 cannot open it, that of rank 0 of process 0 (pid ") && Catch::Contains(", says process 1 (pid "));
  for (const bool copies : {false, true})
    CHECK_THAT(reasons([=](rt::Job& job) {
                 if (job.rank() == 0) pretend::misread = {0, -1, copies};
               }),
               Catch::StartsWith((copies ? "copies" : "kernels") + std::string{" of cuda:0 (rank 0) read other bytes from the memory of rank 1"} + reads_wrong_bytes + ", says process 0"));
  CHECK(reasons([](rt::Job&) {}) == "");
}

TEST_CASE("memory of a device is freed only when every process has closed it, whoever lets it go first") {
  const auto results = with_two([](rt::Job& job, rt::SharedDeviceGroup& group) {
    rt::SharedDevices endpoint{group, job.rank()};
    const auto blocks = [&] { return pretend::device(job.rank()).memory.blocks(); };
    std::string text;
    for (const int first : {0, 1}) {
      const auto region = endpoint.allocate_on_device(100);
      endpoint.device_peer(region, 1 - job.rank());
      job.barrier();
      if (job.rank() == first) endpoint.release_on_device(region);
      job.barrier();
      text += std::to_string(blocks()) + " ";  // what it opened is closed; what it owns, the other still has open
      if (job.rank() != first) endpoint.release_on_device(region);
      job.barrier();
      // Whoever was the first learns of the other at its next allocation.
      const auto next = endpoint.allocate_on_device(100);
      text += std::to_string(blocks()) + " ";
      endpoint.release_on_device(next);
      job.barrier();
    }
    return text + std::to_string(pretend::released_early);
  });
  INFO(test::describe(results));
  CHECK(results[0].text == "1 1 2 1 0");
  CHECK(results[1].text == "2 1 1 1 0");
}

TEST_CASE("a process that has not allocated by the deadline is named") {
  auto options = test::quick_options();
  options.exchange_deadline = std::chrono::milliseconds{1500};
  const auto results = with_two(
      [](rt::Job& job, rt::SharedDeviceGroup& group) -> std::string {
        if (job.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds{2500});
          return "late";
        }
        rt::SharedDevices endpoint{group, 0};
        const auto region = endpoint.allocate_on_device(100);
        return error_of([&] { endpoint.device_peer(region, 1); });
      },
      options);
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::StartsWith("rank 0 waited until the deadline for rank 1 of process 1 (pid ") &&
                                  Catch::EndsWith(" to allocate device memory for a collective. It is stopped or slow: look there, or allow more time with --deadline"));
}

TEST_CASE("a queue that waits for one of a killed process is given up, and the error names the process") {
  auto options = test::quick_options();
  options.exchange_deadline = std::chrono::seconds{60};
  const auto die = [](rt::Job& job, rt::SharedDeviceGroup& group) -> std::string {
    const cl::ReplicaBlocks blocks{2, 2};
    const auto communicator = cl::make_communicator(rt::SharedDevices{group, job.rank()}, blocks);
    auto collective = communicator->prepare(spec_of(cl::Kind::all_reduce, 10, 0), cl::owner_computes(blocks));
    pretend::device(1).stuck = job.rank() == 1;  // it is given its work, and never does it
    const Queue queue{support_of(DeviceKind::cuda), job.rank()};
    collective->on_device()->start_behind(queue.handle());
    collective->wait(soon());
    job.barrier();  // both have queued all that they have to do
    if (job.rank() == 1) ::raise(SIGKILL);
    std::string text = collective->on_device()->done() ? "done; " : "";
    const auto error = error_of([&] {
      for (;;) communicator->check();
    });
    collective.reset();
    return text + (group.abandoned() ? "given up; " : "") + error;
  };
  const auto results = with_two(die, options);
  INFO(test::describe(results));
  CHECK(results[1].signal == SIGKILL);
  CHECK_THAT(results[0].text, Catch::StartsWith("given up; process 1 (pid ") && Catch::Contains(" died"));
  CHECK(results[0].seconds < 40);
}

}  // namespace test_shared_devices
