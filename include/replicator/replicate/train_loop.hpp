// SPDX-License-Identifier: Apache-2.0
// TrainLoop: the loop around the steps of a training run, with progress, validation, checkpoints and TensorBoard files.
// Each part can be used alone: Step::steps, Progress, Replicator::save_checkpoint, StopOnSignal, io::TensorBoardWriter.
#pragma once

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
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
inline int end_training(Replicator& repl, std::int64_t done, std::int64_t steps,
                        const std::string& left = "nothing is saved without --checkpoint") {
  const auto file = repl.save_checkpoint();
  const int signal = repl.stop_signal();
  if (signal == 0) return 0;
  if (repl.process() == 0)
    std::fprintf(stderr, "%s: stopped by %s after step %lld of %lld: %s\n", ::program_invocation_short_name, signal_name(signal).c_str(),
                 static_cast<long long>(done), static_cast<long long>(steps),
                 file.empty() ? left.c_str() : (file + " has all of it, go on with --resume").c_str());
  return 128 + signal;
}

struct TrainLoopOptions {
  std::int64_t steps = 1000;        // in all, including those before a run was resumed; the input may end earlier
  std::int64_t batch = 0;           // examples in a step, over all replicas, for the displayed rate; 0: steps per second
  std::string examples = "images";  // the unit of the rate
  // Names of the first results of the step function. Their means over all replicas are shown and checked. Each result
  // has at most 4 KiB per replica.
  std::vector<Figure> figures = {};
  // Called by all processes after each step, with the number of steps done and the means of `figures`.
  std::function<void(std::int64_t, const std::vector<double>&)> after_step = {};
  // Called by all processes after every `validate_every` steps and after the last step. Returns a value for each of
  // `validated`. The values are discarded if Replicator::stop_signal() is not 0 by then.
  std::function<std::vector<double>()> validate = {};
  std::vector<Figure> validated = {};
  std::int64_t validate_every = 0;  // 0: only after the last step
  // Called by all processes after each step, behind after_step and validate. true makes this step the last one: it is
  // validated and saved as such, and run() returns 0. **It must return the same on all processes**: decide by figures and
  // by what was validated, which are the same on all, and never by a clock. For a limit of time send a signal: see
  // stop_on_signal. In the asynchronous regime figures differ, and each process ends its own steps.
  std::function<bool()> stop_when = {};
  std::string tensorboard = {};  // folder for event files; empty: none
  bool stop_on_nan = true;       // ends the run if a figure is not finite
  bool stop_on_signal = true;    // SIGINT and SIGTERM finish the running step and save: see StopOnSignal
  std::FILE* out = stdout;       // of process 0; the others print nothing
};

class TrainLoop {
 public:
  // Throws BuildError for invalid options, and DataError if process 0 cannot write into the TensorBoard folder.
  TrainLoop(Replicator& repl, TrainLoopOptions options) : repl_{repl}, o_{std::move(options)} {
    if (o_.steps < 1) throw BuildError{"a training loop of " + std::to_string(o_.steps) + " steps was asked for: it takes at least 1"};
    if (o_.validated.empty() != !o_.validate)
      throw BuildError{std::string{"a training loop was given "} +
                       (o_.validate ? "a validation but no names of what it gives" : "names of what a validation gives, but none") +
                       ": set both `validate` and `validated`"};
    if (o_.stop_on_signal) stop_.emplace();
  }

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
    return end(static_cast<std::int64_t>(step.steps_done()), stopped);
  }

  // For more than scalars, during run(). Null without a folder, and in processes other than 0.
  io::TensorBoardWriter* tensorboard() { return board_ ? &*board_ : nullptr; }

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

  void begin(std::int64_t before) {
    find_board(before + 1);
    progress_.emplace(ProgressOptions{.steps = o_.steps, .batch = o_.batch, .examples = o_.examples, .speaks = [this] { return speaks(); }, .out = o_.out, .terminal = ::isatty(::fileno(o_.out)) == 1});
  }
  // Returns whether stop_when ends the run.
  bool after_step(std::int64_t done, const std::vector<double>& values, bool finished) {
    std::string text;
    for (std::size_t i = 0; i < values.size(); ++i) text += (i > 0 ? "  " : "") + o_.figures[i].text(values[i]);
    const bool shown = (*progress_)(done, text);
    tell_board("train/", o_.figures, done, values);
    if (board_ && shown && progress_->rate() > 0) board_->scalar("speed/" + progress_->rate_unit() + " per second", done, progress_->rate());
    if (o_.stop_on_nan) require_finite(done, values);
    if (o_.after_step) o_.after_step(done, values);
    const bool due = done == o_.steps || finished || (o_.validate_every > 0 && done % o_.validate_every == 0);
    if (due) validate(done);
    const bool stops = o_.stop_when && o_.stop_when();
    if (stops && !due) validate(done);
    return stops;
  }
  void validate(std::int64_t done) {
    if (!o_.validate || repl_.stop_signal() != 0) return;
    const auto values = progress_->untimed(o_.validate);
    if (repl_.stop_signal() != 0) return;
    if (values.size() != o_.validated.size())
      throw BuildError{"the validation gave " + std::to_string(values.size()) + " values, and has names for " + std::to_string(o_.validated.size())};
    std::string text = "validation after step " + std::to_string(done) + ":";
    for (std::size_t i = 0; i < values.size(); ++i) text += (i > 0 ? "  " : " ") + o_.validated[i].text(values[i]);
    progress_->say(text);
    tell_board("validation/", o_.validated, done, values);
  }
  // Opens the TensorBoard file from this step on. TensorBoard then drops this step and later ones that an earlier run, or
  // a lost process, has written.
  void find_board(std::int64_t step) {
    if (!speaks()) board_.reset();
    else if (!board_ && !o_.tensorboard.empty()) board_.emplace(o_.tensorboard, io::TensorBoardOptions{.first_step = step > 1 ? step : 0});
  }
  void tell_board(const char* group, const std::vector<Figure>& names, std::int64_t done, const std::vector<double>& values) {
    find_board(done);
    for (std::size_t i = 0; board_ && i < values.size(); ++i) board_->scalar(group + names[i].name, done, values[i]);
  }
  void require_finite(std::int64_t done, const std::vector<double>& values) const {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        throw CheckError{"step " + std::to_string(done) + ": " + o_.figures[i].name + " is " + (std::isnan(values[i]) ? "NaN" : "infinite") +
                         ": the run ends here, and no checkpoint of this step is written. --find-nan names the line where it begins. A label that "
                         "is no class makes a loss NaN; if all are classes, a smaller learning rate or a longer warm-up is the usual cure"};
  }
  int end(std::int64_t done, bool stopped) {
    if (speaks() && repl_.stop_signal() != 0) std::fputc('\n', stderr);  // ends the progress line
    else if (done < o_.steps) progress_->say((stopped ? "stopped early, after " : "the input ended after ") + std::to_string(done) + " of " + std::to_string(o_.steps) + " steps");
    return end_training(repl_, done, o_.steps);
  }

  Replicator& repl_;
  TrainLoopOptions o_;
  std::optional<StopOnSignal> stop_;
  std::optional<io::TensorBoardWriter> board_;
  std::optional<Progress> progress_;
};

}  // namespace replicator
