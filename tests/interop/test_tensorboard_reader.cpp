// SPDX-License-Identifier: Apache-2.0
// Our event files, as TensorBoard's own reader sees them.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>
#include <vector>

#include <replicator/io/event_file.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/folders.hpp"
#include "../support/programs.hpp"

namespace test_tensorboard_reader {

using namespace replicator;
using namespace replicator::detail;

TEST_CASE("TensorBoard's own reader finds the scalars, images and histograms that were written, those of a resumed run from its first step on") {
  const char* python = std::getenv("REPLICATOR_PYTHON");
  const TemporaryFolder folder;
  const auto at = [](double seconds) { return [seconds] { return seconds; }; };
  {
    io::TensorBoardWriter board{folder.path(), {.clock = at(1700000000.5)}};
    for (int step = 0; step < 4; ++step) board.scalar("loss/train", step, 1.0 / (step + 1));
    board.image("grey", 0, {Shape{1, 2}, {7, 255}});
    board.image("red", 1, Array<std::uint8_t>{Shape{5, 4, 3}});
    board.histogram("weights", 1, std::vector<float>{-1, 1, 2, 3}, 2);
  }
  io::TensorBoardWriter resumed{folder.path(), {.first_step = 2, .clock = at(1700000100.5)}};
  resumed.scalar("loss/train", 2, 5.0);

  const auto result = test::run_program(std::string{python ? python : "python3"} + " " + test::script("print-tensorboard") + " " + folder.path());
  if (result.exit_code == 77) {
    WARN(result.text);
    return;
  }
  CHECK(result.exit_code == 0);
  CHECK(result.text ==
        "scalar loss/train 0 1\n"
        "scalar loss/train 1 0.5\n"
        "scalar loss/train 2 5\n"
        "image grey 0 1x2 of 71 bytes, PNG: True\n"
        "image red 1 5x4 of 133 bytes, PNG: True\n"
        "histogram weights 1 min -1 max 3 num 4 sum 5 squares 15 limits [1.0, 3.0] counts [2.0, 2.0]\n");
}

}  // namespace test_tensorboard_reader
