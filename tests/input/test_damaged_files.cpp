// SPDX-License-Identifier: Apache-2.0
// A source reads or refuses a file of any bytes. Under AddressSanitizer, nothing else may happen.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <replicator/data/files/cifar.hpp>
#include <replicator/data/files/cifar_files.hpp>
#include <replicator/data/files/example.hpp>
#include <replicator/data/files/idx.hpp>
#include <replicator/data/files/idx_header.hpp>
#include <replicator/data/files/npy.hpp>
#include <replicator/data/files/npy_header.hpp>
#include <replicator/data/files/parse_example.hpp>
#include <replicator/data/files/record_files.hpp>
#include <replicator/data/files/tar.hpp>
#include <replicator/data/files/tar_samples.hpp>
#include <replicator/data/files/tfrecord.hpp>
#include <replicator/engine/replay/recording.hpp>
#include <replicator/io/safetensors_file.hpp>

#include "format_files.hpp"
#include "temporary_folder.hpp"

namespace test_damaged_files {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

// The file with a few bytes changed, removed, repeated or cut off.
std::string mutated(std::string file) {
  const int changes = *rc::gen::inRange(1, 6);
  for (int i = 0; i < changes && !file.empty(); ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, file.size());
    const auto count = std::min(*rc::gen::inRange<std::size_t>(1, 20), file.size() - at);
    switch (*rc::gen::inRange(0, 6)) {
      case 0: file[at] = static_cast<char>(*rc::gen::inRange(0, 256)); break;
      case 1: file[at] = *rc::gen::element('\0', '\x7f', '\x80', '\xff', '9', '0', ' ', '=', '\'', '(', ',', ')'); break;
      case 2: file[at] = static_cast<char>(file[at] ^ 1 << *rc::gen::inRange(0, 8)); break;
      case 3: file.erase(at, count); break;
      case 4: file.insert(at, file.substr(at, count)); break;
      default: file.resize(at);
    }
  }
  return file;
}

// Reads every element there is, up to a hundred: damage beyond the header is found then.
template <class Source>
void read_all(const Source& source) {
  for (std::int64_t i = 0; i < std::min<std::int64_t>(source.size(), 100); ++i)
    try {
      (void)source(i);
    } catch (const DataError&) {
    }
}

void survives(const std::string& good, const std::function<void(const std::string& path)>& read) {
  const TemporaryFolder folder;
  const auto attempt = [&](const std::string& content) {
    const auto path = folder.write("file", content);
    try {
      read(path);
    } catch (const DataError& error) {
      RC_ASSERT(std::string{error.what()}.find(path) == 0);
    }
  };
  REQUIRE(rc::check([&] { attempt(mutated(good)); }));
  for (std::size_t size = 0; size < good.size(); size += 1 + good.size() / 100) attempt(good.substr(0, size));
}

// The same on a copy that ends where the memory ends: a mapped file has readable bytes behind it.
void survives_exactly(const std::string& good, const std::function<void(std::span<const std::byte>)>& read) {
  REQUIRE(rc::check([&] {
    const std::string bytes = mutated(good);
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    const std::vector<std::byte> exact(first, first + bytes.size());
    try {
      read(exact);
    } catch (const DataError&) {
    }
  }));
}

// A check sum that fits whatever the mutation did to the header.
std::string mended_tar(std::string file) {
  for (std::size_t at = 0; at + 512 <= file.size(); at += 512) {
    if (file[at] == '\0' || file.substr(at + 257, 5) != "ustar") continue;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? 32 : static_cast<unsigned char>(file[at + i]);
    file.replace(at + 148, 8, octal(sum, 6) + std::string{"\0 ", 2});
  }
  return file;
}

}  // namespace

TEST_CASE("no IDX file crashes its reader") {
  const auto good = idx_file<std::int16_t>(11, {3, 2, 2}, std::vector<std::int16_t>(12, 258));
  survives(good, [](const std::string& path) { read_all(data::idx<float>(path)); });
  survives_exactly(good, [](auto bytes) { data::detail::read_idx_header("x", bytes); });
}

TEST_CASE("no .npy file crashes its reader") {
  const auto good = npy_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", std::string(24, 'x'));
  survives(good, [](const std::string& path) { read_all(data::npy<double>(path)); });
  survives_exactly(good, [](auto bytes) { data::detail::read_npy_header("x", bytes); });
}

TEST_CASE("no CIFAR file crashes its reader") {
  const std::string good = cifar_record(3, 1, true) + cifar_record(4, 1, true);
  const TemporaryFolder folder;
  REQUIRE(rc::check([&] {
    folder.write("train.bin", mutated(good));
    try {
      read_all(data::cifar100(folder.path()));
    } catch (const DataError&) {
    }
  }));
}

TEST_CASE("no tar archive crashes its reader, even with check sums that fit") {
  const std::string good = tar_member("a.txt", "content") + tar_member("././@LongLink", "b/b.txt", 'L') + tar_member("cut", "more") +
                           tar_member("x", pax_record("path", "c.txt") + pax_record("size", "3"), 'x') + tar_member("cut", "end") + tar_end();
  survives(good, [](const std::string& path) { read_all(data::tar(path, "txt")); });
  survives_exactly(mended_tar(good), [](auto bytes) {
    const std::string name = "x";
    for (data::detail::TarReader reader{name, bytes}; reader.next();) {
    }
  });
  const TemporaryFolder folder;
  REQUIRE(rc::check([&] {
    const auto path = folder.write("t.tar", mended_tar(mutated(good)));
    try {
      read_all(data::tar(path, "txt"));
    } catch (const DataError&) {
    }
  }));
}

TEST_CASE("no TFRecord file crashes its reader") {
  survives(record("first") + record(std::string(50, 'x')) + record(""), [](const std::string& path) { read_all(data::tfrecord(path)); });
}

TEST_CASE("no message crashes the reader of examples") {
  survives_exactly(example_message(), [](auto bytes) {
    const data::Example example{bytes};
    if (example.kind("image") == data::Example::Kind::bytes) (void)example.bytes("image");
  });
}

TEST_CASE("no safetensors file crashes its reader") {
  const TemporaryFolder folder;
  io::write_safetensors(folder.path() + "/good", {{"a", Array<float>{{2}, {1, 2}}.any()}, {"b", Array<std::uint8_t>{{3}}.any()}}, {{"k", "v"}});
  std::vector<std::byte> bytes;
  io::read_file(folder.path() + "/good", bytes);
  survives({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, [](const std::string& path) { io::read_safetensors(path); });
}

namespace {

std::string content(const std::string& path) {
  std::vector<std::byte> bytes;
  io::read_file(path, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What --record writes: two steps of one replicate call, one of another.
Recording good_recording() {
  const auto array = [](float value) { return Array<float>{{2}, {value, value}}.any(); };
  Recording recording;
  recording.replica = 1;
  recording.replicas = 3;
  recording.seed = 17;
  recording.device_kind = "cpu";
  recording.steps.resize(3);
  for (std::size_t i = 0; i < 3; ++i) {
    auto& step = recording.steps[i];
    step.number = i == 0 ? 9 : 10;
    step.ordinal = i == 2 ? 1 : 0;
    step.inputs = {array(1), array(2)};
    step.collectives = {array(3)};
    step.results = {array(4)};
    step.all_results.emplace(0, Array<float>{{3, 2}}.any());
    step.before.emplace("w", array(5));
    step.after.emplace("w", array(6));
  }
  return recording;
}

// The file with one entry of its metadata replaced.
std::string with_metadata(const std::string& key, const std::string& value) {
  const TemporaryFolder folder;
  const auto path = folder.path() + "/r";
  save_recording(path, good_recording());
  auto file = io::read_safetensors(path);
  file.metadata[key] = value;
  io::write_safetensors(path, file.tensors, file.metadata);
  return content(path);
}
std::string refused(const std::string& file) {
  const TemporaryFolder folder;
  const auto path = folder.write("r", file);
  try {
    load_recording(path);
  } catch (const DataError& error) {
    const std::string text = error.what();
    REQUIRE(text.find(path + ": ") == 0);
    return text.substr(path.size() + 2);
  }
  return "nothing";
}

}  // namespace

TEST_CASE("no recording crashes its reader, and one that is read has numbers in their ranges") {
  const TemporaryFolder folder;
  save_recording(folder.path() + "/good", good_recording());
  const auto check = [](const std::string& path) {
    const auto recording = load_recording(path);
    RC_ASSERT(recording.replicas >= 1 && recording.replica >= 0 && recording.replica < recording.replicas);
    RC_ASSERT(recording.logical_devices >= 1 && recording.threads_per_device >= 1);
    RC_ASSERT(!recording.steps.empty());
    for (const auto& step : recording.steps) RC_ASSERT(step.ordinal >= 0);
  };
  survives(content(folder.path() + "/good"), check);
  // The container is whole, its numbers are not.
  REQUIRE(rc::check([&] {
    const auto key = *rc::gen::element<std::string>("replica", "replicas", "seed", "logical_devices", "threads_per_device", "steps");
    const auto value = *rc::gen::oneOf(rc::gen::map(rc::gen::arbitrary<std::int64_t>(), [](std::int64_t n) { return std::to_string(n); }),
                                       rc::gen::container<std::string>(rc::gen::elementOf(std::string{"0189.- +x"})));
    const TemporaryFolder other;
    const auto path = other.write("file", with_metadata(key, value));
    try {
      check(path);
    } catch (const DataError& error) {
      RC_ASSERT(std::string{error.what()}.find(path + ": ") == 0);
    }
  }));
}

TEST_CASE("a recording's number out of its range is refused with its name, and steps with their place") {
  CHECK(refused(with_metadata("replica", "1")) == "nothing");
  CHECK(refused(with_metadata("replica", "3")) == "its \"replica\" is \"3\": it must be a whole number from 0 to 2");
  CHECK(refused(with_metadata("replicas", "0")) == "its \"replicas\" is \"0\": it must be a whole number from 1 to 1000000");
  CHECK_THAT(refused(with_metadata("replicas", "2147483647")), Catch::StartsWith("its \"replicas\" is \"2147483647\": "));
  CHECK_THAT(refused(with_metadata("seed", "-1")), Catch::StartsWith("its \"seed\" is \"-1\": "));
  CHECK_THAT(refused(with_metadata("logical_devices", "0")), Catch::StartsWith("its \"logical_devices\" is \"0\": "));
  CHECK_THAT(refused(with_metadata("threads_per_device", "99999999999")), Catch::StartsWith("its \"threads_per_device\" is \"99999999999\": "));
  CHECK(refused(with_metadata("steps", "")) == "no step was recorded in it");
  CHECK(refused(with_metadata("steps", "9 10x 10.1")) ==
        "its \"steps\" has \"10x\" at byte 2: a step is a whole number, or two with a point between them");
  for (const char* steps : {"9 -1", "9 10.", "9 .1", "9 10.0", "9 010", "9 10.-1", "9  10", "9 99999999999999999999", "9 10.99999999999"})
    CHECK_THAT(refused(with_metadata("steps", steps)),
               Catch::StartsWith("its \"steps\" has \"") && Catch::Contains("\" at byte 2: a step is a whole number"));
  CHECK(refused(with_metadata("steps", "9 9 10 10.1")) == "its \"steps\" has \"9\" at byte 2: the steps before it are later, or the same");
  CHECK_THAT(refused(with_metadata("steps", "10 9 10.1")), Catch::Contains("\"9\" at byte 3: the steps before it are later"));
  CHECK(refused(with_metadata("steps", "9 10")) == "its tensor \"step10.1/after/w\" belongs to none of its steps");
}

}  // namespace test_damaged_files
