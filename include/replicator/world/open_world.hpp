// SPDX-License-Identifier: Apache-2.0
// The code of world.hpp: a job of processes, and the collectives between them. Include world.hpp instead.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/connect/connect_hosts.hpp>
#include <replicator/collectives/connect/linked_parts.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/devices/pages.hpp>
#include <replicator/job/job.hpp>
#include <replicator/job/job_inline.hpp>
#include <replicator/world/sliced_collectives.hpp>
#include <replicator/world/world.hpp>

namespace replicator::detail {

class JobWorld final : public WorldImplementation {
 public:
  JobWorld(const transport::ProcessEnvironment& environment, const WorldOptions& options)
      : options_{checked(options)},
        job_{environment, job_options(options_)},
        blocks_{checked_replicas(options.replicas, job_.size()), job_.size()} {
    job_.barrier("world of " + std::to_string(blocks_.replicas()) + " replicas, transport " + options.transport +
                 ", window " + std::to_string(options.window));
    std::vector<int> process_of_rank(static_cast<std::size_t>(job_.size()));
    for (std::size_t rank = 0; rank < process_of_rank.size(); ++rank) process_of_rank[rank] = static_cast<int>(rank);
    communicator_ = std::move(collectives::connect_hosts(options.transport, job_, process_of_rank, blocks_).front());
    sliced_ = std::make_unique<collectives::SlicedCollectives>(*communicator_, options.window);
  }

  int rank() const noexcept override { return job_.rank(); }
  int size() const noexcept override { return job_.size(); }
  const collectives::ReplicaBlocks& blocks() const noexcept override { return blocks_; }

  void run(const collectives::RawCall& call) override {
    guarded(call, [&] {
      call.require_valid(blocks_, rank());
      const PlainArithmetic environment;
      fatal_ = true;
      compare(call);
      sliced_->run(call, options_.deadline);
      fatal_ = false;
    });
  }

  std::byte* allocate(std::size_t bytes) override {
    std::byte* memory = nullptr;
    guarded("allocate", [&] {
      fatal_ = true;
      if (job_.size() > 1) job_.barrier("allocate " + std::to_string(bytes) + " bytes");
      memory = sliced_->allocate(bytes);
      if (!memory) {
        pages_.push_back(map_pages(bytes));
        memory = pages_.back().get();
      }
      if (!memory) throw BuildError{"there is no memory for " + std::to_string(bytes) + " bytes"};
      fatal_ = false;
    });
    return memory;
  }

  void barrier() override {
    guarded("barrier", [&] { job_.barrier(); });
  }

  void finish() override {
    guarded("finish", [&] {
      finished_ = true;
      sliced_.reset();
      communicator_.reset();
      pages_.clear();
      job_.leave();
    });
  }

 private:
  // Other libraries may have set a flushing or rounding mode, which would make this process's sums differ. This saves and
  // restores the mode of the vector unit only, which does all additions here. The x87 unit would cost as much as a small call.
  class PlainArithmetic {
   public:
    PlainArithmetic() : saved_{floating_point_mode()} {
      if (saved_ != plain_arithmetic) set_floating_point_mode(plain_arithmetic);
    }
    PlainArithmetic(const PlainArithmetic&) = delete;
    PlainArithmetic& operator=(const PlainArithmetic&) = delete;
    // Drops the floating-point flags that were raised meanwhile.
    ~PlainArithmetic() {
      if (floating_point_mode() != saved_) set_floating_point_mode(saved_);
    }

   private:
    FloatingPointMode saved_;
  };
  using BufferPlace = std::pair<std::size_t, std::size_t>;
  using Signature = std::tuple<collectives::Kind, DType, Reduction, bool, int, std::int64_t, BufferPlace, BufferPlace>;
  static constexpr std::size_t most_known = 65536;
  static constexpr std::chrono::hours longest_deadline{24 * 36525};  // a clock can count only a few of these

  static WorldOptions checked(WorldOptions options) {
    if (options.deadline.count() < 0)
      throw BuildError{"the deadline of a world is " + std::to_string(options.deadline.count()) + " ms: it is at least 0, which is for none"};
    if (options.deadline > longest_deadline) options.deadline = {};
    return options;
  }
  static int checked_replicas(int replicas, int processes) {
    if (replicas == 0) return processes;
    if (replicas < processes)
      throw BuildError{"a world of " + std::to_string(replicas) + " replicas was asked for on " + std::to_string(processes) +
                       " process(es): every process needs at least one replica; 0 stands for one on each"};
    return replicas;
  }
  static transport::JobOptions job_options(const WorldOptions& options) {
    transport::JobOptions result;
    result.exchange_deadline = options.deadline;
    return result;
  }

  // A new call is compared before it begins. So a process that repeats an old call is ahead of one that asks for this
  // comparison, and the job ends within a second. A repeated call is not compared, but the job compares the texts of calls
  // that do not return.
  void compare(const collectives::RawCall& call) {
    if (job_.size() == 1) return;
    const char* text = name_of(call.kind).data();
    if (options_.compare_calls) {
      // Only the root reads a broadcast's input.
      const BufferPlace input = call.kind == collectives::Kind::broadcast ? BufferPlace{} : sliced_->place_of(call.input), output = sliced_->place_of(call.output);
      const Signature signature{call.kind, call.dtype, call.reduction, call.any_order, call.root, call.count, input, output};
      if (!last_ || last_->first != signature) {
        if (known_.size() == most_known) forgotten_ = std::exchange(known_, {});
        const auto [place, first] = known_.try_emplace(signature);
        if (first) {
          place->second = call.text() + words("input", input) + words("output", output);
          job_.barrier(place->second);
        }
        last_ = &*place;
      }
      text = last_->second.c_str();
    }
    job_.begin("call", ++calls_, text);
  }

  static std::string words(const char* what, const BufferPlace& place) {
    if (place.first == 0) return {};
    return std::string{", its "} + what + " at byte " + std::to_string(place.second) + " of allocation " + std::to_string(place.first);
  }
  static std::string words(const char* what) { return what; }
  static std::string words(const collectives::RawCall& call) { return call.text(); }

  template <class What, class Action>
  void guarded(const What& what, Action&& action) {
    if (finished_) throw BuildError{words(what) + " was called after finish(): make another World for it"};
    if (failure_) std::rethrow_exception(failure_);
    try {
      action();
    } catch (const CommunicationError& error) {
      fail(error.what(), error.culprit());
    } catch (const std::exception& error) {
      if (!fatal_) throw;
      fail(job_.describe(rank()) + " failed: " + error.what(), rank());
    }
  }

  // Tells the other processes, so that none waits for this one. All end with one sentence.
  [[noreturn]] void fail(const std::string& message, int culprit) {
    if (job_.size() > 1) job_.abort(message, culprit);
    failure_ = std::make_exception_ptr(job_.aborted() ? CommunicationError{job_.failure(), job_.culprit()}
                                                      : CommunicationError{message, culprit});
    std::rethrow_exception(failure_);
  }

  // The calls that were compared, with their texts. The job's thread may read the text of the latest call: so both are
  // declared before the job, and the calls that were known before the latest `most_known` are kept as well.
  std::map<Signature, std::string> known_, forgotten_;
  const std::pair<const Signature, std::string>* last_ = nullptr;  // consecutive calls are often equal
  WorldOptions options_;
  transport::Job job_;
  collectives::ReplicaBlocks blocks_;
  std::unique_ptr<collectives::Communicator> communicator_;
  std::unique_ptr<collectives::SlicedCollectives> sliced_;
  std::vector<Pages> pages_;
  std::uint64_t calls_ = 0;
  bool fatal_ = false;  // other processes may already be in the call
  bool finished_ = false;
  std::exception_ptr failure_;
};

template <class>
std::unique_ptr<WorldImplementation> open_world(const Processes* processes, const WorldOptions& options) {
  return std::make_unique<JobWorld>(processes ? transport::environment_of(*processes) : transport::find_environment(), options);
}

}  // namespace replicator::detail
