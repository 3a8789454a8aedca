// SPDX-License-Identifier: Apache-2.0
// The output of d4pg: scores, a learning curve, pictures of an episode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <replicator/io/file.hpp>
#include <replicator/io/pictures/png.hpp>
#include <replicator/io/tensorboard.hpp>
#include <replicator/rl/actors.hpp>
#include <replicator/rl/offscreen.hpp>

#include "../support/line_plot.hpp"
#include "../support/picture_grid.hpp"
#include "options.hpp"
#include "tasks.hpp"
#include "world.hpp"

namespace d4pg {

inline double mean_score(const rp::rl::Task& task, const std::vector<rp::rl::Episode>& episodes) {
  double sum = 0;
  for (const auto& episode : episodes) sum += score(task, episode.reward);
  return sum / static_cast<double>(episodes.size());
}

// Only process 0 reports. Its episodes are those of its own replicas.
class Report {
 public:
  // Throws DataError if an output file cannot be written.
  Report(const Options& o, const rp::rl::Task& task, bool speaks) : o_{o}, task_{task}, speaks_{speaks} {
    if (!speaks) return;
    if (!o.save.empty()) rp::io::require_writable("--save", o.save);
    if (!o.curve.empty()) rp::io::require_writable("--curve", o.curve);
    if (!o.strip.empty()) rp::io::require_writable("--strip", o.strip);
    if (!o.tensorboard.empty()) board_.emplace(o.tensorboard);
  }

  void explored(std::int64_t step, const std::vector<rp::rl::Episode>& ended) {
    if (!speaks_ || ended.empty()) return;
    exploring_.x.push_back(static_cast<double>(step));
    exploring_.y.push_back(mean_score(task_, ended));
    if (board_) board_->scalar("score/exploring", step, exploring_.y.back());
  }
  void learned(std::int64_t step, const Figures& figures) {
    latest_ = figures;
    if (!board_) return;
    board_->scalar("loss/critic", step, figures.loss);
    board_->scalar("value", step, figures.value);
  }
  void evaluated(std::int64_t step, std::int64_t environment_steps, const std::vector<rp::rl::Episode>& episodes) {
    if (!speaks_) return;
    evaluated_.x.push_back(static_cast<double>(step));
    evaluated_.y.push_back(mean_score(task_, episodes));
    std::printf("step %lld/%lld  %lld environment steps  score %.1f of 1000 without noise", static_cast<long long>(step),
                static_cast<long long>(o_.steps), static_cast<long long>(environment_steps), evaluated_.y.back());
    if (!exploring_.y.empty()) std::printf(", %.1f with", exploring_.y.back());
    if (step > 0) std::printf("  critic's loss %.4f  value %.3f", latest_.loss, latest_.value);
    std::printf("\n");
    std::fflush(stdout);
    if (board_) board_->scalar("score/evaluation", step, evaluated_.y.back());
  }
  // Draws the score over learner steps: with exploration noise in grey, without noise in blue.
  void draw_curve() const {
    if (!speaks_ || o_.curve.empty()) return;
    const example::Curve curves[] = {exploring_, evaluated_};
    rp::io::write_png(o_.curve, example::line_plot(curves, {.low = 0, .high = 1000}));
  }

 private:
  const Options& o_;
  const rp::rl::Task& task_;
  bool speaks_;
  example::Curve exploring_{{}, {}, {170, 170, 170}}, evaluated_;
  Figures latest_;
  std::optional<rp::io::TensorBoardWriter> board_;
};

constexpr std::int64_t strip_extent = 128;  // pixels

// Draws twelve pictures of an episode without noise, side by side. All processes must call it, since all act; the one
// with a renderer writes the file.
template <class E>
void draw_strip(const std::string& file, World<E>& world, std::optional<rp::rl::Renderer>& renderer) {
  constexpr std::int64_t count = 12, size = strip_extent;
  rp::Array<float> strip{{count, 3, size, size}};
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(3 * size * size));
  const std::int64_t turns = World<E>::Actors::groups * world.body().task().actions_per_episode();
  for (std::int64_t turn = 0, drawn = 0; turn < turns; ++turn) {
    if (renderer && drawn < count && turn * count >= drawn * turns) {
      renderer->draw(world.first_environment().data(), pixels);
      for (std::int64_t i = 0; i < size * size; ++i)
        for (std::int64_t c = 0; c < 3; ++c)
          strip[(drawn * 3 + c) * size * size + i] = static_cast<float>(pixels[static_cast<std::size_t>(3 * i + c)]) / 255;
      ++drawn;
    }
    world.act();
  }
  if (renderer) rp::io::write_png(file, example::picture_grid(strip, {.columns = count}));
}

}  // namespace d4pg
