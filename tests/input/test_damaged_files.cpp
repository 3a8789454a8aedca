// SPDX-License-Identifier: Apache-2.0
// Whatever bytes a file has, a source reads it or refuses it: run under AddressSanitizer, nothing else may happen.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <replicator/data/cifar.hpp>
#include <replicator/data/example.hpp>
#include <replicator/data/idx.hpp>
#include <replicator/data/npy.hpp>
#include <replicator/data/tar.hpp>
#include <replicator/data/tfrecord.hpp>
#include <replicator/io/safetensors.hpp>

#include "format_files.hpp"
#include "temporary_folder.hpp"

using namespace replicator;
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
