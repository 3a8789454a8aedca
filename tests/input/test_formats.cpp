// SPDX-License-Identifier: Apache-2.0
// Sources of foreign file formats: their elements, and their errors.
#include <catch2/catch.hpp>

#include <string>
#include <tuple>
#include <vector>

#include <replicator/data/batch.hpp>
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
#include <replicator/data/transform.hpp>

#include "format_files.hpp"
#include "temporary_folder.hpp"

namespace test_formats {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Contains;

namespace {

template <class T>
std::vector<T> values(const Array<T>& array) {
  return {array.begin(), array.end()};
}
std::string text(const Array<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

TEST_CASE("IDX gives the rows of big-endian numbers, exactly or in a wider type") {
  const TemporaryFolder folder;
  const auto pixels = folder.write("images", idx_file<std::uint8_t>(8, {3, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255}));
  const auto labels = folder.write("labels", idx_file<std::uint8_t>(8, {3}, {7, 0, 9}));
  auto input = data::zip(data::idx<std::uint8_t>(pixels), data::idx<std::int32_t>(labels)) | data::epochs(1) | data::batch(3);
  const auto [x, y] = *input.next();
  CHECK(x.shape() == Shape{3, 2, 2});
  CHECK(values(x) == std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255});
  CHECK(values(y) == std::vector<std::int32_t>{7, 0, 9});
  CHECK(values(data::idx<float>(pixels)(2)) == std::vector<float>{8, 9, 10, 255});
  CHECK(values(data::idx<std::int32_t>(folder.write("i2", idx_file<std::int16_t>(11, {2, 1}, {-300, 5})))(0)) == std::vector<std::int32_t>{-300});
  CHECK(values(data::idx<std::int32_t>(folder.write("i1", idx_file<std::int8_t>(9, {2, 1}, {-3, 5})))(0)) == std::vector<std::int32_t>{-3});
  CHECK(values(data::idx<std::int32_t>(folder.write("i4", idx_file<std::int32_t>(12, {1, 1}, {-300000})))(0)) == std::vector<std::int32_t>{-300000});
  CHECK(values(data::idx<float>(folder.write("f4", idx_file<float>(13, {2}, {0.5f, -1.25f})))(1)) == std::vector<float>{-1.25f});
  CHECK(values(data::idx<double>(folder.write("f8", idx_file<double>(14, {2}, {0.1, 2})))(0)) == std::vector<double>{0.1});
  CHECK_THROWS_WITH(data::idx<float>(folder.path() + "/i4"), Contains("i4: it holds int32, but was asked for as float32"));
  CHECK_THROWS_WITH(data::idx<std::uint8_t>(folder.path() + "/i1"), Contains("holds int8"));
}

TEST_CASE("indexed sources shuffle, shard and seek as folders do") {
  const TemporaryFolder folder;
  std::vector<std::int32_t> numbers(20);
  for (std::size_t i = 0; i < 20; ++i) numbers[i] = static_cast<std::int32_t>(i);
  const auto source = data::idx<std::int32_t>(folder.write("n", idx_file<std::int32_t>(12, {20}, numbers)));
  const auto read = [&](int replica, int replicas, std::int64_t from) {
    auto input = data::TableSource{source} | data::shuffle() | data::shard({.seed = 4, .replica = replica, .replicas = replicas}) | data::batch(5);
    input.seek(from);
    return values(*input.next());
  };
  const auto whole = read(0, 1, 0);
  CHECK(whole != std::vector<std::int32_t>{0, 1, 2, 3, 4});
  CHECK(read(1, 4, 0)[0] == whole[1]);
  CHECK(read(0, 1, 2) != read(0, 1, 3));
  CHECK(read(0, 1, 2) == read(0, 1, 2));
}

TEST_CASE("npy gives the rows of an array in C order, of every version and byte order") {
  const TemporaryFolder folder;
  const std::string data = little(1.5f) + little(-2.0f) + little(3.0f) + little(4.0f);
  for (const int version : {1, 2, 3}) {
    const auto path = folder.write("x.npy", npy_file(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", data));
    CHECK(values(data::npy<float>(path)(1)) == std::vector<float>{3, 4});
    CHECK(values(data::npy<double>(path)(0)) == std::vector<double>{1.5, -2});
  }
  const auto one = [&](const std::string& descr, const std::string& bytes, const std::string& shape = "(1,)") {
    return folder.write("y.npy", npy_file(1, "{'shape': " + shape + ", 'fortran_order': False, 'descr': '" + descr + "'}", bytes));
  };
  CHECK(data::npy<float>(one(">f4", big(1.5f)))(0).item() == 1.5f);
  CHECK(data::npy<std::int64_t>(one("<i8", little(std::int64_t{-5})))(0).item() == -5);
  CHECK(data::npy<std::int64_t>(one("<u4", little(std::uint32_t{4000000000})))(0).item() == 4000000000);
  CHECK(data::npy<bool>(one("|b1", "\x02"))(0).item() == true);
  CHECK(data::npy<std::uint8_t>(one("|u1", "\xff"))(0).item() == 255);
  CHECK(data::npy<double>(one("<f8", little(0.1)))(0).item() == 0.1);
  CHECK(data::npy<float>(one("<f4", "", "(2, 0)"))(1).shape() == Shape{0});
  CHECK(data::npy<float>(one("<f4", "", "(2L, 0L)"))(1).shape() == Shape{0});  // as Python 2 wrote it
}

TEST_CASE("CIFAR gives pictures and labels of all batches in order") {
  const TemporaryFolder folder;
  for (int i = 1; i <= 5; ++i) folder.write("data_batch_" + std::to_string(i) + ".bin", cifar_record(i, i) + cifar_record(9, 50 + i));
  folder.write("test_batch.bin", cifar_record(10, 1) + cifar_record(4, 2));
  folder.write("train.bin", cifar_record(99, 3, true));
  const auto train = data::cifar10(folder.path());
  CHECK(train.size() == 10);
  const auto [picture, label] = train(7);
  CHECK(picture.shape() == Shape{3, 32, 32});
  CHECK(picture[0] == 54);
  CHECK(picture[3071] == static_cast<std::uint8_t>(3071 * 7 + 54));
  CHECK(label.item() == 9);
  CHECK(std::get<1>(data::cifar100(folder.path())(0)).item() == 99);
  const auto test = data::cifar10(folder.path(), {.train = false});
  CHECK(std::get<1>(test(1)).item() == 4);
  CHECK_THROWS_WITH(test(0), Contains("test_batch.bin: byte 0: the label 10; there are 10 classes"));
  folder.write("data_batch_3.bin", cifar_record(1, 1) + "x");
  CHECK_THROWS_WITH(data::cifar10(folder.path()), Contains("data_batch_3.bin: byte 3073: ") && Contains("3074"));
}

TEST_CASE("tar gives the components of every sample, with long names of three kinds") {
  const TemporaryFolder folder;
  const std::string deep(120, 'd');
  std::string archive = tar_member("./a/", "", '5') + tar_member("./a/0.JPG", "picture 0") +
                        tar_member("./a/0.cls", "3\n") + tar_member("README", "no ending");
  archive += tar_member("1.cls", "4", '0', "prefix") + tar_member("1.seg.png", "mask", '0', "prefix") + tar_member("1.jpeg", "", '0', "prefix");
  archive += tar_member("././@LongLink", deep + "/2.jpg\0", 'L') + tar_member("cut", "two") +
             tar_member("x", pax_record("mtime", "1.5") + pax_record("path", deep + "/2.cls"), 'x') +
             tar_member("cut", "5");
  archive += tar_end();
  const auto source = data::tar(folder.write("t.tar", archive), "jpg;jpeg", "cls");
  REQUIRE(source.size() == 3);
  CHECK(text(std::get<0>(source(0))) == "picture 0");
  CHECK(text(std::get<1>(source(0))) == "3\n");
  CHECK(std::get<0>(source(1)).shape() == Shape{0});
  CHECK(text(std::get<1>(source(1))) == "4");
  CHECK(text(std::get<0>(source(2))) == "two");
  CHECK(text(std::get<1>(source(2))) == "5");
  const auto labels = data::tar_pictures(folder.path());
  CHECK(labels.images() == 3);
  CHECK(labels(0).label == 3);
  CHECK(labels(2).name == folder.path() + "/t.tar: " + deep + "/2");
}

TEST_CASE("a folder of archives is one source, in the order of names") {
  const TemporaryFolder folder;
  for (const char* name : {"b", "a"}) folder.write(std::string{name} + ".tar", tar_member("0.txt", name) + tar_end());
  folder.write("c.txt", "not one");
  const auto source = data::tar(folder.path(), "txt");
  REQUIRE(source.size() == 2);
  CHECK(text(std::get<0>(source(0))) == "a");
  CHECK_THROWS_WITH(data::tfrecord(folder.path()), Contains("the folder has no files with .tfrecord in their names"));
}

TEST_CASE("CRC-32C has its known values") {
  const auto sum = [](const std::string& bytes) { return crc32c(std::as_bytes(std::span{bytes.data(), bytes.size()})); };
  CHECK(sum("123456789") == 0xE3069283u);
  CHECK(sum(std::string(32, '\0')) == 0x8A9136AAu);
  CHECK(sum(std::string(32, '\xff')) == 0x62A8AB43u);
  CHECK(sum("") == 0);
}

TEST_CASE("TFRecord gives the records, and an Example its features") {
  const TemporaryFolder folder;
  const auto path = folder.write("x.tfrecord-00000-of-00001", record("first") + record("") + record(example_message()));
  const auto source = data::tfrecord(folder.path());
  REQUIRE(source.size() == 3);
  CHECK(text(source(0)) == "first");
  CHECK(source(1).shape() == Shape{0});
  const auto example = data::parse_example(source(2));
  CHECK(text(example.bytes("image")) == "jpeg bytes");
  CHECK(values(example.int64s("label")) == std::vector<std::int64_t>{7, -1});
  CHECK(values(example.int64s("old")) == std::vector<std::int64_t>{300});
  CHECK(values(example.floats("box")) == std::vector<float>{0.5f, -2});
  CHECK(values(example.floats("one")) == std::vector<float>{1.5f});
  CHECK(example.kind("nothing") == data::Example::Kind::none);
  CHECK_THROWS_WITH(
      example.floats("label"),
      Contains("\"label\" was asked for as floats; the example has box (floats), image (bytes), label (int64s)"));
  CHECK_THROWS_WITH(example.bytes("image", 1), Contains("1 entries; entry 1"));
  auto labels = data::TableSource{source} | data::shard({.replica = 2, .replicas = 3}) |
                data::transform([](const Array<std::uint8_t>& bytes) { return data::parse_example(bytes).int64s("label"); }) | data::batch(1);
  CHECK(labels.next()->shape() == Shape{1, 2});
}

TEST_CASE("a damaged file is refused by name, place and what was found") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& content, auto open, const std::string& where, const std::string& found) {
    const auto path = folder.write("bad", content);
    INFO(found);
    CHECK_THROWS_AS(open(path), DataError);
    CHECK_THROWS_WITH(open(path), Contains(path + ": byte " + where + ": ") && Contains(found));
  };
  const auto idx = [](const std::string& path) { data::idx<std::uint8_t>(path); };
  const std::string good = idx_file<std::uint8_t>(8, {2, 2}, {1, 2, 3, 4});
  refused("", idx, "0", "found 0");
  refused("\x1f\x8b\x08\x01", idx, "0", "decompress the file first");
  refused("abcd", idx, "0", "two zero bytes");
  refused(std::string{"\0\0\x07\x01", 4}, idx, "2", "the type 7");
  refused(std::string{"\0\0\x08\0", 4}, idx, "3", "0 dimensions");
  refused(good.substr(0, 9), idx, "9", "ends within its header");
  refused(good.substr(0, 15), idx, "12", "the header describes uint8[2, 2], but 3 bytes follow it");
  refused(good + "x", idx, "12", "but 5 bytes follow it");
  refused(idx_file<std::uint8_t>(8, {0xffffffff, 0xffffffff, 0xffffffff}, {}), idx, "16", "more than 2^59 - 1 elements");
  refused(idx_file<std::uint8_t>(8, {1, 0, 0xffffffff, 0xffffffff}, {}), idx, "20", "more than 2^59 - 1 elements");

  const auto npy = [](const std::string& path) { data::npy<float>(path); };
  const auto header = [](const std::string& text, const std::string& data = "") { return npy_file(1, text, data); };
  refused("\x93NUMPX\x01\0\0\0", npy, "0", "no .npy file");
  refused(std::string{"\x93NUMPY\x04\0\0\0\0\0", 12}, npy, "6", "version 4");
  refused(std::string{"\x93NUMPY\x01\0\xff\0", 10}, npy, "8", "claims 255 bytes, and 0 follow");
  refused(header("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", "1234"), npy, "48", "numpy.ascontiguousarray");
  refused(header("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}"), npy, "25", "the type '<c8' cannot be read");
  refused(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"), npy, "20", "arrays of records");
  refused(header("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "1234"), npy, "10", "a scalar");
  refused(header("{'descr': '<f4', 'shape': (1,)}", "1234"), npy, "41", "are needed");
  refused(header("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999999,)}"), npy, "79", "too large");
  refused(header("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "1234"), npy, "128", "float32[3], but 4 bytes follow it");

  const auto tar = [](const std::string& path) { data::tar(path, "txt"); };
  const std::string member = tar_member("0.txt", "content");
  refused("short", tar, "0", "fewer than 512 bytes");
  refused(member, tar, "1024", "it was cut short");
  refused(member.substr(0, 515), tar, "0", "the member claims 7 bytes, and 3 follow");
  std::string damaged = member + tar_end();
  damaged[3] = 'X';
  refused(damaged, tar, "0", "check sum");
  refused(tar_member("1.txt", "holes", 'S') + tar_end(), tar, "0", "a sparse file, which cannot be read: pack the archive again without --sparse");
  refused(tar_member("x", pax_record("GNU.sparse.major", "1") + pax_record("GNU.sparse.minor", "0"), 'x') + member + tar_end(), tar, "512", "a sparse file");
  refused(member + tar_member("1.dat", "") + tar_end(), tar, "1024", "the sample \"1\" has no file that ends in \"txt\"");
  refused(member + tar_member("0.TXT", "") + tar_end(), tar, "1024", "two files");
  refused(tar_member("x", "12 path=x", 'x') + tar_end(), tar, "512", "pax record");

  const auto records = [](const std::string& path) { data::tfrecord(path)(0); };
  refused("123456789", records, "0", "9 bytes are left");
  refused(record("abc").substr(0, 17), records, "0", "a record of 3 bytes, but 1 are left");
  std::string flipped = record("abc");
  flipped[13] ^= 1;
  refused(flipped, records, "12", "the content of the record");
  flipped = record("abc");
  flipped[1] ^= 1;
  refused(flipped, records, "0", "the length of the record");
}

TEST_CASE("labels in archives are decimal numbers") {
  const TemporaryFolder folder;
  for (const std::string label : {"", "x", "-1", "1.5", "2147483648"}) {
    const auto path = folder.write("t.tar", tar_member("a.jpg", "") + tar_member("a.cls", label) + tar_end());
    CHECK_THROWS_WITH(data::tar_pictures(path)(0), Contains("t.tar: a: the label is no decimal number") && Contains("\"" + label + "\""));
  }
}

}  // namespace test_formats
