// SPDX-License-Identifier: Apache-2.0
// The programs that docs/ explains print the same on any placement of their replicas, and docs/ quotes them exactly.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "../input/format_files.hpp"
#include "../input/temporary_folder.hpp"
#include "examples.hpp"

namespace test_tutorial {

using namespace replicator;

namespace {

std::string run(const std::string& program_and_flags) {
  const auto result = test::run_program(test::example(program_and_flags));
  INFO(program_and_flags << "\n"
                         << result.text);
  CHECK(result.exit_code == 0);
  return result.text;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream{file};
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}
const std::filesystem::path& root() {
  static const std::filesystem::path path = test::script("..");
  return path;
}

// The blocks of a document in this language, without the indentation that all lines of a block share.
std::vector<std::string> blocks(const std::string& document, const std::string& language) {
  std::vector<std::string> found;
  const std::string begin = "\n```" + language + "\n", end = "```\n";
  for (auto at = document.find(begin); at != std::string::npos; at = document.find(begin, at)) {
    at += begin.size();
    const auto stop = document.find("\n" + end, at);
    found.push_back(document.substr(at, stop + 1 - at));
    at = stop;
  }
  return found;
}
// The file's lines from every one on, with as much indentation less as that one has: where the block stands there.
bool shows(const std::string& source, const std::string& block) {
  const auto first = block.substr(0, block.find('\n') + 1);
  for (auto at = source.find(first); at != std::string::npos; at = source.find(first, at + 1)) {
    const auto line = at == 0 ? 0 : source.rfind('\n', at - 1) + 1;
    const std::string indentation(at - line, ' ');
    if (source.compare(line, at - line, indentation) != 0) continue;
    std::string expected;
    std::istringstream lines{block};
    for (std::string each; std::getline(lines, each);) expected += (each.empty() ? "" : indentation) + each + "\n";
    if (source.compare(line, expected.size(), expected) == 0) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the documents show programs of examples/ as they are") {
  std::vector<std::string> sources;
  for (const auto* folder : {"examples", "examples/custom"})
    for (const auto& entry : std::filesystem::directory_iterator{root() / folder})
      if (entry.path().extension() == ".cpp") sources.push_back(text_of(entry.path()));
  for (const auto* document : {"../README.md", "tutorial.md", "extending.md", "coming_from.md", "seeing.md", "data.md", "precision.md"}) {
    const auto found = blocks(text_of(root() / "docs" / document), "cpp");
    CHECK(found.size() > 0);
    for (const auto& block : found) {
      INFO(document << " shows what no program of examples/ has:\n"
                    << block);
      CHECK(std::any_of(sources.begin(), sources.end(), [&](const std::string& source) { return shows(source, block); }));
    }
  }
}

TEST_CASE("the tutorial prints what its document says, on any number of devices") {
  const auto serial = run("tutorial --serial");
  for (const char* devices : {"cpu:0-1", "cpu:0-3"}) CHECK(run(std::string{"tutorial --devices "} + devices) == serial);
  for (const auto& process : test::run_as_processes(2, test::example("tutorial --devices cpu:0-1"))) {
    INFO(process.text);
    CHECK(process.exit_code == 0);
    CHECK(test::line_of(process.text, "digest: ") == test::line_of(serial, "digest: "));
  }
  const auto quoted = blocks(text_of(root() / "docs" / "tutorial.md"), "text");
  CHECK(quoted.size() > 5);
  for (const auto& block : quoted) {
    INFO(block);
    CHECK(serial.find(block) != std::string::npos);
  }
}

TEST_CASE("sources reads tables, texts and pictures, and a step depends on the one before") {
  const TemporaryFolder folder;
  const auto text = run("custom/sources " + folder.path() + "/files --replicas 2 --devices cpu:0-1");
  using Catch::Matchers::Contains;
  CHECK_THAT(text, Contains("a house of 81.5 with 3 rooms costs 250000; flower 6.3 is of species 2\n"));
  // Four windows of 128 letters cover the text, and one of them holds its only change: 64 windows are 16 epochs.
  CHECK_THAT(text, Contains("places of the first 64 windows where the letter changes: 16\n"));
  CHECK_THAT(text, Contains("the replicas see [208.5, 208.5]\n"));
  CHECK_THAT(text, Contains("4 pictures of 2 classes, drawn in equal parts from each\nlevel 16\n"));
}

TEST_CASE("own_data learns from two NumPy files, with one digest on one device, on two, and on two processes") {
  const TemporaryFolder folder;
  const std::int64_t rows = 960;
  std::string x, y;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t label = i % 3;
    for (std::int64_t k = 0; k < 4; ++k) {
      const float value = (k == label ? 1.0f : 0.0f) + 0.01f * static_cast<float>((i * 7 + k * 13) % 50);
      x.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    y.append(reinterpret_cast<const char*>(&label), sizeof label);
  }
  const auto files = folder.write("x.npy", test::npy_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (960, 4), }", x)) + " " +
                     folder.write("y.npy", test::npy_file(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (960,), }", y));
  const auto command = "custom/own_data " + files + " --replicas 4";
  const auto serial = run(command + " --devices cpu:0");
  CHECK(std::stod(test::line_of(serial, "200: loss ")) < 0.2);
  CHECK(run(command + " --devices cpu:0-1") == serial);
  CHECK(test::run_as_processes(2, test::example(command))[0].text == serial);
}

TEST_CASE("every program of examples/custom prints the same on one device and on two") {
  for (const char* program : {"own_operation", "own_gradient", "own_optimizer", "local_sgd", "contrastive", "experts", "data_source"}) {
    const auto command = std::string{"custom/"} + program + " --replicas 4 --devices ";
    const auto serial = run(command + "cpu:0");
    CHECK(test::line_of(serial, "digest: ").size() == 64);
    CHECK(run(command + "cpu:0-1") == serial);
  }
  const auto serial = run("custom/two_devices --replicas 2");
  CHECK(test::line_of(serial, "digest: ").size() == 64);
  for (const char* flags : {"--devices cpu:0-1", "--logical-devices 2 --devices cpu:0-1", "--logical-devices 2 --devices cpu:0-3"})
    CHECK(run(std::string{"custom/two_devices --replicas 2 "} + flags) == serial);
}

TEST_CASE("of several processes one writes for TensorBoard, and all have the bits of one") {
  const TemporaryFolder folder;
  const auto command = test::example("custom/tensorboard") + " --replicas 2 " + folder.path() + "/";
  const auto alone = test::digits_of(command + "one", "digest: ");
  const auto results = test::run_as_processes(2, command + "two");
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(test::line_of(result.text, "digest: ") == alone);
  for (const char* run : {"one", "two"}) {
    const std::filesystem::directory_iterator files{folder.path() + "/" + run};
    CHECK(std::distance(begin(files), end(files)) == 1);
  }
}

TEST_CASE("an algorithm of one's own is proved, its planted mistake is named, and its bits are the library's") {
  const auto text = run("custom/own_collective");
  CHECK_THAT(text, Catch::Contains("recursive_doubling on 8 ranks is proved\nwithout one dependency: rank 5") &&
                       Catch::EndsWith("the bits of the library's own: yes\n"));
  const auto quoted = blocks(text_of(root() / "docs" / "extending.md"), "text");
  CHECK(quoted.size() == 2);
  for (const auto& block : quoted) CHECK_THAT(text, Catch::Contains(block));
}

TEST_CASE("programs of examples/custom have less than 100 lines") {
  for (const auto& entry : std::filesystem::directory_iterator{root() / "examples" / "custom"}) {
    const auto text = text_of(entry.path());
    INFO(entry.path().string());
    CHECK(std::count(text.begin(), text.end(), '\n') < 100);
  }
}

}  // namespace test_tutorial
