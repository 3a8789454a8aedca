// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <cstring>
#include <filesystem>
#include <replicator/core/philox.hpp>
#include <replicator/io/safetensors_file.hpp>
#include <string>
#include <vector>

namespace test_safetensors {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;

namespace {

// A folder that goes away with the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "replicator_io_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error{"mkdtemp"};
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string result(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) result[i] = static_cast<char>(header.size() >> (8 * i));
  return result + header + std::string(data_bytes, '\x01');
}

void put(const std::string& path, std::string_view text) {
  io::write_file(path, std::as_bytes(std::span{text.data(), text.size()}));
}

std::string text_of(const std::string& path) {
  std::vector<std::byte> bytes;
  io::read_file(path, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::map<std::string, AnyArray> sample() {
  return {{"conv1.weight", Array<float>{{2, 3}, {1, 2, 3, 4, 5, 6}}.any()},
          {"a \"quoted\"\n n\xC3\xA4me", Array<std::int32_t>{{2}, {-1, 7}}.any()},
          {"brain", Array<bfloat16>{{3}, {1.5f, -2, 0.1f}}.any()},
          {"double", Array<double>{{}, {0.25}}.any()},
          {"empty", Array<float>{Shape{0, 4}}.any()},
          {"mask", Array<bool>{{3}, {true, false, true}}.any()},
          {"pixels", Array<std::uint8_t>{{1}, {200}}.any()},
          {"steps", Array<std::int64_t>{{1}, {1LL << 40}}.any()}};
}

}  // namespace

TEST_CASE("a safetensors file gives back names, types, bytes and metadata") {
  const Folder folder;
  const auto path = folder / "weights.safetensors";
  io::write_safetensors(path, sample(), {{"format", "pt"}, {"note", "line\tbreak \\ \""}});
  const auto read = io::read_safetensors(path);
  const auto expected = sample();
  REQUIRE(read.tensors.size() == expected.size());
  for (const auto& [name, array] : expected) {
    INFO(name);
    REQUIRE(read.tensors.count(name));
    CHECK(read.tensors.at(name).type() == array.type());
    CHECK(std::memcmp(read.tensors.at(name).data(), array.data(), array.size_bytes()) == 0);
  }
  CHECK(read.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"note", "line\tbreak \\ \""}});
  CHECK(std::distance(std::filesystem::directory_iterator{folder / ""}, {}) == 1);  // nothing partial is left
}

TEST_CASE("a safetensors file lies in the order of names, with its data aligned") {
  const Folder folder;
  const auto path = folder / "w";
  io::write_safetensors(path, {{"b", Array<float>{{1}, {2}}.any()}, {"a", Array<float>{{1}, {1}}.any()}});
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  const auto text = text_of(path);
  CHECK(text.substr(8, header.size()) == header);
  CHECK((text.size() - 8) % 8 == 0);
}

TEST_CASE("saving two tensors under one name is refused") {
  const float x = 0;
  const io::NamedTensor tensor{"w", {DType::float32, {}}, reinterpret_cast<const std::byte*>(&x)};
  CHECK_THROWS_WITH(io::write_safetensors("unused", std::vector{tensor, tensor}),
                    Contains("two tensors") && Contains("\"w\""));
  CHECK_THROWS_WITH(io::write_safetensors("unused", {{"__metadata__", Array<float>{{1}}.any()}}),
                    "unused: a tensor cannot be called \"__metadata__\", which the format keeps for itself: give it another name");
}

TEST_CASE("a failed save leaves the old file") {
  const Folder folder;
  const auto path = folder / "w";
  put(path, "old");
  try {
    io::FileReplacement file{path};
    file.write(std::as_bytes(std::span{"new", 3}));
    throw 1;
  } catch (int) {
  }
  CHECK(text_of(path) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator{folder / ""}, {}) == 1);
}

TEST_CASE("two that replace a file at the same time do not write into each other's, and the one that ends last gives it its bytes") {
  const Folder folder;
  const auto path = folder / "w";
  io::FileReplacement first{path}, last{path};
  const auto write = [](io::FileReplacement& file, std::string_view text) { file.write(std::as_bytes(std::span{text.data(), text.size()})); };
  write(first, "fir");
  write(last, "last");
  write(first, "st");
  first.commit();
  CHECK(text_of(path) == "first");
  last.commit();
  CHECK(text_of(path) == "last");
  CHECK(std::distance(std::filesystem::directory_iterator{folder / ""}, {}) == 1);
}

TEST_CASE("a folder is no safetensors file, and neither is a named pipe, whose writer is not waited for") {
  const Folder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(io::read_safetensors(folder / "pipe"), Contains("must be a regular file, and is a named pipe"));
  CHECK_THROWS_WITH(io::read_safetensors(folder / ""), Contains("must be a regular file, and is a folder"));
}

TEST_CASE("a file that is not valid safetensors is refused by name and reason") {
  const Folder folder;
  const auto path = folder / "bad.safetensors";
  const auto refused = [&](const std::string& content, const std::string& reason) {
    put(path, content);
    INFO(content);
    CHECK_THROWS_AS(io::read_safetensors(path), DataError);
    CHECK_THROWS_WITH(io::read_safetensors(path), Contains("bad.safetensors") && Contains(reason));
  };
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const std::string a = "\"a\":" + tensor("F32", "[2]", "[0,8]");
  refused("", "0 bytes");
  refused("1234567", "7 bytes");
  refused(std::string(8, '\xff') + "{}", "header claims 18446744073709551615");
  refused(file_of("{}", 0).substr(0, 9), "header claims 2 bytes, and 1 follow");
  refused(file_of("", 0), ": byte 8: header of safetensors: expected '{'");
  refused(file_of("{" + a + "}", 7), "cut short");
  refused(file_of("{" + a + "}", 9), "describes 8 bytes of tensors, but the file holds 9");
  refused(file_of("{" + a + "}x", 8), "follows the closing brace");
  refused(file_of("{" + a + "," + a + "}", 8), "\"a\" appears twice");
  refused(file_of("{" + a + ",\"b\":" + tensor("F32", "[2]", "[4,12]") + "}", 12), "inside of another tensor");
  refused(file_of("{" + a + ",\"b\":" + tensor("F32", "[2]", "[12,20]") + "}", 20), "behind a hole");
  refused(file_of("{\"a\":" + tensor("F16", "[2]", "[0,4]") + "}", 4), "\"F16\"");
  refused(file_of("{\"a\":" + tensor("F32", "[2]", "[0,4]") + "}", 4), "float32[2], 8 bytes");
  refused(file_of("{\"a\":" + tensor("F32", "[2]", "[8,0]") + "}", 8), "wrong data_offsets");
  refused(file_of("{\"a\":" + tensor("F32", "[-2]", "[0,8]") + "}", 8), ": byte 37: header of safetensors: expected a number that is not negative");
  refused(file_of("{\"a\":" + tensor("F32", "[4294967296,4294967296,0]", "[0,0]") + "}", 0), "too large");
  refused(file_of("{\"a\":" + tensor("F32", "[99999999999999999999]", "[0,0]") + "}", 0), "too large");
  refused(file_of("{\"a\":" + tensor("U8", "[1152921504606846976]", "[0,1152921504606846976]") + "}", 0), "too large");
  refused(file_of("{\"a\":" + tensor("F32", "[02]", "[0,8]") + "}", 8), "zeros in front");
  refused(file_of("{\"\\u\x10\x11\x12\x13\":" + tensor("F32", "[2]", "[0,8]") + "}", 8), "four hexadecimal digits");
  refused(file_of("{\"a\":" + tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4), "8 dimensions");
  refused(file_of("{\"a\":" + tensor("BOOL", "[1]", "[0,1]") + "}", 1).substr(0) + "\x02", "holds 2");
  refused(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8), "needs dtype, shape and data_offsets");
  refused(file_of("{\"a\":{\"color\":\"F32\"}}", 8), "unexpected \"color\"");
  refused(file_of("{\"a", 0), "does not end");
  refused(file_of("{\"\\ud800x\":", 0), "surrogate");
  refused(file_of("{\"__metadata__\":{\"k\":1}}", 0), "expected '\"'");
  CHECK_THROWS_WITH(io::read_safetensors(folder / "absent"), Contains("absent") && Contains("No such file"));
}

TEST_CASE("escapes in names are read as UTF-8") {
  const Folder folder;
  put(folder / "w", file_of(R"({"__metadata__":{"\u00e4\u20ac\ud83d\ude00":"\n\/"}})", 0));
  CHECK(io::read_safetensors(folder / "w").metadata.at("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80") == "\n/");
}

TEST_CASE("a damaged safetensors file is read or refused, never worse") {
  const Folder folder;
  const auto path = folder / "w";
  io::write_safetensors(path, sample(), {{"k", "v\\u0041"}});
  const std::string good = text_of(path);
  int refused = 0;
  for (std::uint64_t round = 0; round < 3000; ++round) {
    PhiloxStream random{1, round};
    std::string bad = good;
    for (std::uint32_t i = random.below(4) + 1; i-- > 0;) {
      const std::uint32_t at = random.below(static_cast<std::uint32_t>(bad.size()));
      switch (random.below(4)) {
        case 0:
          bad[at] = static_cast<char>(random.next());
          break;
        case 1:
          bad[at] = "{}[]\",:\\u0919"[random.below(13)];
          break;
        case 2:
          bad.erase(at, 1 + random.below(3));
          break;
        default:
          bad.insert(at, bad.substr(random.below(static_cast<std::uint32_t>(bad.size())), random.below(9)));
      }
      if (bad.size() < 8) break;
    }
    put(path, bad);
    try {
      (void)io::read_safetensors(path);
    } catch (const DataError&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

}  // namespace test_safetensors
