// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <replicator/data/files/record_files.hpp>
#include <replicator/data/files/tfrecord.hpp>
#include <replicator/io/event_file.hpp>

#include "../input/temporary_folder.hpp"

namespace test_tensorboard {

using namespace replicator;
using namespace replicator::detail;

namespace {

const io::TensorBoardOptions fixed{.clock = [] { return 1700000000.5; }};

std::string hex_of(const std::string& path) {
  std::vector<std::byte> bytes;
  io::read_file(path, bytes);
  std::string text;
  for (const auto byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(byte) & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("an event file has exactly the bytes that TensorBoard's own writer makes of the same events") {
  const TemporaryFolder folder;
  io::TensorBoardWriter board{folder.path(), {.first_step = 3, .clock = fixed.clock}};
  board.scalar("loss/train", 7, 0.25);
  board.image("x", 2, {Shape{1, 2}, {7, 255}});
  board.histogram("w", 300, std::vector<float>{2, -1, INFINITY, 3, NAN, 1}, 2);
  // tensorboard 2.21: RecordWriter(...).write(Event(...).SerializeToString())
  CHECK(hex_of(board.path()) ==
        "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110"
        "0f000000000000006d532b090900002040fc54d94110033a02080120ab681c"
        "200000000000000029eda9500900002040fc54d94110072a130a110a0a6c6f73732f747261696e150000803e2e016028"
        "6300000000000000b16b13d90900002040fc54d94110022a560a540a0178224f080110021801224789504e470d0a1a0a0000000d4948445200000002000000010800000000d14920560000000e494441547801010300fcff0007ff011001072bc2fcf20000000049454e44ae42608214251a7a"
        "6600000000000000723b876a0900002040fc54d94110ac022a580a560a01772a5109000000000000f0bf110000000000000840190000000000001040"
        "210000000000001440290000000000002e403210000000000000f03f00000000000008403a1000000000000000400000000000000040c61ffcbb");
}

TEST_CASE("every call is whole in the file when it returns, and TFRecord readers read it") {
  const TemporaryFolder folder;
  io::TensorBoardWriter board{folder.path()};
  for (std::int64_t step = 0; step < 3; ++step) {
    board.scalar("loss", step, 1.0);
    CHECK(data::tfrecord(board.path()).size() == step + 2);
  }
}

TEST_CASE("a record that cannot be written whole is taken back, so that those behind it can be read") {
  const TemporaryFolder folder;
  io::TensorBoardWriter board{folder.path()};
  board.scalar("loss", 0, 1.0);
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{200, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK_THROWS_AS(board.histogram("w", 1, std::vector<float>{1, 2}), DataError);
  Array<std::uint8_t> noise{Shape{20, 20}};
  for (std::int64_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<std::uint8_t>(i * i * 37 >> 3);
  CHECK_THROWS_AS(board.image("x", 1, noise), DataError);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
  ::signal(SIGXFSZ, handler);
  board.scalar("loss", 2, 1.0);
  CHECK(data::tfrecord(board.path()).size() == 3);
}

TEST_CASE("each writer has a file of its own, with the name by which TensorBoard finds it") {
  const TemporaryFolder folder;
  const auto runs = folder.path() + "/runs/a";
  const io::TensorBoardWriter first{runs, fixed}, second{runs, fixed};
  CHECK(first.path() != second.path());
  CHECK_THAT(first.path(), Catch::StartsWith(runs + "/events.out.tfevents.1700000000."));
  CHECK_THROWS_WITH(io::TensorBoardWriter(first.path()), Catch::StartsWith(first.path() + ": cannot make the folder"));
}

TEST_CASE("histograms of nothing, of one value and of other numbers of intervals are told apart from mistakes") {
  const auto counts = [](std::vector<float> values, int buckets) {
    return io::detail::histogram_message(values, buckets).view().size();
  };
  const auto figures = 5 * 9;  // least, greatest, number, sum, squares
  CHECK(counts({}, 30) == figures + 2 * 2);
  CHECK(counts({NAN, -INFINITY}, 30) == figures + 2 * 2);
  CHECK(counts({2, 2, 2}, 30) == figures + 2 * (2 + 8));
  CHECK(counts({-std::numeric_limits<float>::max(), std::numeric_limits<float>::max()}, 10) == figures + 2 * (2 + 80));
  const TemporaryFolder folder;
  io::TensorBoardWriter board{folder.path()};
  CHECK_THROWS_WITH(board.histogram("w", 0, {}, 0), Catch::Contains("a histogram of 0 intervals was asked for"));
  CHECK_THROWS_AS(board.image("x", 0, Array<std::uint8_t>{Shape{2, 2, 4}}), BuildError);
  CHECK(data::tfrecord(board.path()).size() == 1);
}

}  // namespace test_tensorboard
