// SPDX-License-Identifier: Apache-2.0
// TrainLoop: the loop around the steps of a training run, with progress, validation, checkpoints and TensorBoard files.
// Each part can be used alone: Step::steps, Progress, Replicator::save_checkpoint, StopOnSignal, io::TensorBoardWriter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/io/tensorboard.hpp>
#include <replicator/replicate/progress.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/replicate/stop_on_signal.hpp>

namespace replicator {

// Ends a training run after its last step or a stop by a signal. All processes call it. Writes a checkpoint if the
// deployment has a folder for them. Returns the exit code for main: 0, or 128 + the signal. For a signal, process 0
// also prints to stderr the number of steps `done`, and `left` if there is no checkpoint.
template <class = void>
int end_training(Replicator& repl, std::int64_t done, std::int64_t steps, const std::string& left = "nothing is saved without --checkpoint");

struct TrainLoopOptions {
  std::int64_t steps = 1000;        // in all, including those before a run was resumed; the input may end earlier
  std::int64_t batch = 0;           // examples in a step, over all replicas, for the displayed rate; 0: steps per second
  std::string examples = "images";  // the unit of the rate
  // Names of the first results of the step function. Their means over all replicas are shown and checked. Each result
  // has at most 4 KiB per replica.
  std::vector<Figure> figures = {};
  // Called by all processes after each step, with the number of steps done and the means of `figures`. It may print lines.
  std::function<void(std::int64_t, const std::vector<double>&)> after_step = {};
  // Called by all processes after every `validate_every` steps and after the last step. Returns a value for each of
  // `validated`. The values are discarded if Replicator::stop_signal() is not 0 by then.
  std::function<std::vector<double>()> validate = {};
  std::vector<Figure> validated = {};
  std::int64_t validate_every = 0;  // 0: only after the last step
  // Ends the run where it returns true: the step is validated and saved as the last one, and run() returns 0. All processes
  // call it after each step, once after_step and validate have returned.
  // **It must return the same on all processes.** Decide by the figures and by validated values, which are equal on all of
  // them; never by a clock. To limit the time, send a signal: see stop_on_signal. In the asynchronous regime the figures
  // differ, and each process ends its own steps.
  std::function<bool()> stop_when = {};
  std::string tensorboard = {};  // folder for event files; empty: none
  bool stop_on_nan = true;       // ends the run if a figure is not finite
  bool stop_on_signal = true;    // SIGINT and SIGTERM finish the running step and save: see StopOnSignal
  std::FILE* out = stdout;       // of process 0; the others print nothing
};

class TrainLoop {
 public:
  // Throws BuildError for invalid options, and DataError if process 0 cannot write into the TensorBoard folder.
  TrainLoop(Replicator& repl, TrainLoopOptions options) : repl_{repl}, o_{std::move(options)} { check(); }
  TrainLoop(const TrainLoop&) = delete;
  TrainLoop& operator=(const TrainLoop&) = delete;

  // Runs the steps: shows the progress, validates, and writes checkpoints as --checkpoint and --every ask, plus one at
  // the end. Returns the exit code for main:
  // - 0 when all steps are done, or when stop_when or the input has ended the run earlier, which is printed;
  // - 128 + the signal that stopped the run, after a whole step and its checkpoint.
  //
  // Throws what Step::step throws, and CheckError if a figure is not finite; then no checkpoint is written.
  template <class... A>
  int run(Step<A...>& step, std::source_location where = std::source_location::current()) {
    if (o_.figures.size() > sizeof...(A))
      throw BuildError{"a training loop was given names for " + std::to_string(o_.figures.size()) + " results, but its step has " +
                       std::to_string(sizeof...(A))};
    begin(static_cast<std::int64_t>(step.steps_done()));
    bool stopped = false;
    for (const auto& results : step.steps(o_.steps, where)) {
      stopped = after_step(static_cast<std::int64_t>(step.steps_done()), means(results, std::index_sequence_for<A...>{}), step.finished());
      if (stopped) break;
    }
    // A resumed run may leave the loop where an earlier run stopped it: then the input has not ended, and stop_when was not asked.
    return end(static_cast<std::int64_t>(step.steps_done()), stopped || !step.finished());
  }

  // For more than scalars, during run(). Null without a folder, and in processes other than 0.
  template <class = void>
  io::TensorBoardWriter* tensorboard();

 private:
  bool speaks() const { return repl_.process() == 0; }

  template <class Results, std::size_t... I>
  std::vector<double> means(const Results& results, std::index_sequence<I...>) const {
    std::vector<double> values;
    const auto add = [&](const auto& result) {
      if (values.size() < o_.figures.size()) values.push_back(mean_of(result));
    };
    (add(std::get<I>(results)), ...);
    return values;
  }
  // The mean over all replicas, added in their order.
  template <class V>
  static double mean_of(const PerReplica<V>& result) {
    double sum = 0, count = 0;
    for (int replica = 0; replica < result.replicas(); ++replica)
      for (const auto value : result[replica]) {
        sum += static_cast<double>(value);
        count += 1;
      }
    return count > 0 ? sum / count : 0;
  }

  // The code is in replicate/run_training.hpp.
  template <class = void>
  void check();
  template <class = void>
  void begin(std::int64_t before);
  template <class = void>  // returns whether stop_when ends the run
  bool after_step(std::int64_t done, const std::vector<double>& values, bool finished);
  template <class = void>
  void validate(std::int64_t done);
  template <class = void>
  void find_board(std::int64_t step);
  template <class = void>
  void tell_board(const char* group, const std::vector<Figure>& names, std::int64_t done, const std::vector<double>& values);
  template <class = void>
  void require_finite(std::int64_t done, const std::vector<double>& values) const;
  template <class = void>
  int end(std::int64_t done, bool stopped);

  struct Parts;  // the progress line, the TensorBoard file and the signal handlers

  Replicator& repl_;
  TrainLoopOptions o_;
  std::shared_ptr<Parts> parts_;
};

}  // namespace replicator
