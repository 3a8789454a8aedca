// SPDX-License-Identifier: Apache-2.0
// The code of train_loop.hpp: what a loop does around its steps.
#pragma once

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/io/event_file.hpp>
#include <replicator/replicate/train_loop.hpp>

namespace replicator {

template <class>
int end_training(Replicator& repl, std::int64_t done, std::int64_t steps, const std::string& left) {
  const auto file = repl.save_checkpoint();
  const int signal = repl.stop_signal();
  if (signal == 0) return 0;
  if (repl.process() == 0)
    std::fprintf(stderr, "%s: stopped by %s after step %lld of %lld: %s\n", ::program_invocation_short_name, signal_name(signal).c_str(),
                 static_cast<long long>(done), static_cast<long long>(steps),
                 file.empty() ? left.c_str() : (file + " has all of it, go on with --resume").c_str());
  return 128 + signal;
}

struct TrainLoop::Parts {
  std::optional<StopOnSignal> stop;
  std::optional<io::TensorBoardWriter> board;
  std::optional<Progress> progress;
};

template <class>
io::TensorBoardWriter* TrainLoop::tensorboard() {
  return parts_->board ? &*parts_->board : nullptr;
}

template <class>
void TrainLoop::check() {
  if (o_.steps < 1) throw BuildError{"a training loop of " + std::to_string(o_.steps) + " steps was asked for: it takes at least 1"};
  if (o_.batch < 0) throw BuildError{"a training loop was given a batch of " + std::to_string(o_.batch) + ": give the number of examples in a step, or 0 to show steps per second"};
  if (o_.validate_every < 0)
    throw BuildError{"a training loop was asked to validate every " + std::to_string(o_.validate_every) + " steps: give a number of steps, or 0 to validate after the last step only"};
  if (o_.validated.empty() != !o_.validate)
    throw BuildError{std::string{"a training loop was given "} +
                     (o_.validate ? "a validation but no names of what it gives" : "names of what a validation gives, but none") +
                     ": set both `validate` and `validated`"};
  parts_ = std::make_shared<Parts>();
  if (o_.stop_on_signal) parts_->stop.emplace();
}

template <class>
void TrainLoop::begin(std::int64_t before) {
  find_board(before + 1);
  parts_->progress.emplace(ProgressOptions{.steps = o_.steps, .batch = o_.batch, .examples = o_.examples, .speaks = [this] { return speaks(); }, .out = o_.out, .terminal = detail::is_terminal(o_.out)});
}

template <class>
bool TrainLoop::after_step(std::int64_t done, const std::vector<double>& values, bool finished) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) text += (i > 0 ? "  " : "") + o_.figures[i].text(values[i]);
  const bool shown = (*parts_->progress)(done, text);
  tell_board("train/", o_.figures, done, values);
  if (auto& board = parts_->board; board && shown && parts_->progress->rate() > 0)
    board->scalar("speed/" + parts_->progress->rate_unit() + " per second", done, parts_->progress->rate());
  if (o_.stop_on_nan) require_finite(done, values);
  if (o_.after_step) parts_->progress->aside([&] { o_.after_step(done, values); });
  const bool due = done == o_.steps || finished || (o_.validate_every > 0 && done % o_.validate_every == 0);
  if (due) validate(done);
  bool stops = false;
  if (o_.stop_when) parts_->progress->aside([&] { stops = o_.stop_when(); });
  if (stops && !due) validate(done);
  return stops;
}

template <class>
void TrainLoop::validate(std::int64_t done) {
  if (!o_.validate || repl_.stop_signal() != 0) return;
  parts_->progress->end_line();  // the validation may print
  const auto values = parts_->progress->untimed(o_.validate);
  if (repl_.stop_signal() != 0) return;
  if (values.size() != o_.validated.size())
    throw BuildError{"the validation gave " + std::to_string(values.size()) + " values, and has names for " + std::to_string(o_.validated.size())};
  std::string text = "validation after step " + std::to_string(done) + ":";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i > 0 ? "  " : " ") + o_.validated[i].text(values[i]);
  parts_->progress->say(text);
  tell_board("validation/", o_.validated, done, values);
}

// Opens the TensorBoard file from this step on. TensorBoard then drops this step and later ones that an earlier run, or
// a lost process, has written.
template <class>
void TrainLoop::find_board(std::int64_t step) {
  auto& board = parts_->board;
  if (!speaks()) board.reset();
  else if (!board && !o_.tensorboard.empty()) board.emplace(o_.tensorboard, io::TensorBoardOptions{.first_step = step > 1 ? step : 0});
}

template <class>
void TrainLoop::tell_board(const char* group, const std::vector<Figure>& names, std::int64_t done, const std::vector<double>& values) {
  find_board(done);
  for (std::size_t i = 0; parts_->board && i < values.size(); ++i) parts_->board->scalar(group + names[i].name, done, values[i]);
}

template <class>
void TrainLoop::require_finite(std::int64_t done, const std::vector<double>& values) const {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw CheckError{"step " + std::to_string(done) + ": " + o_.figures[i].name + " is " + (std::isnan(values[i]) ? "NaN" : "infinite") +
                       ": the run ends here, and no checkpoint of this step is written. --find-nan names the line where it begins. A label that "
                       "is no class makes a loss NaN; if all are classes, a smaller learning rate or a longer warm-up is the usual cure"};
}

template <class>
int TrainLoop::end(std::int64_t done, bool stopped) {
  if (speaks() && repl_.stop_signal() != 0) std::fputc('\n', stderr);  // ends the progress line
  else if (done < o_.steps) parts_->progress->say((stopped ? "stopped early, after " : "the input ended after ") + std::to_string(done) + " of " + std::to_string(o_.steps) + " steps");
  return end_training(repl_, done, o_.steps);
}

}  // namespace replicator
