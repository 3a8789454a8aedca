// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <replicator/core/sha256.hpp>

namespace test_sha256 {

using replicator::detail::Sha256;

namespace {
std::string digest(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.text();
}
}  // namespace

TEST_CASE("SHA-256 gives the digests of NIST's examples") {
  CHECK(digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(
      digest("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrst"
             "nopqrstu") == "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(digest(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 does not depend on how the bytes are cut") {
  const std::string text = [] {
    std::string result;
    for (int i = 0; i < 300; ++i) result += static_cast<char>(i * 7);
    return result;
  }();
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string_view part = std::string_view{text}.substr(0, size);
    Sha256 hash;
    for (std::size_t at = 0, step = 1; at < size; at += step, step = step * 3 % 67 + 1)
      hash.update(part.substr(at, step));
    REQUIRE(hash.text() == digest(part));
    REQUIRE(hash.text() == digest(part));  // asking does not change it
  }
}

}  // namespace test_sha256
