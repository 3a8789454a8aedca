// SPDX-License-Identifier: Apache-2.0
// Shared by all fuzz targets; scripts/fuzz builds and runs them. The first lines of a target say
//
//   // covers: io/safetensors.hpp ...     the headers in which covered lines are counted
//   // links: turbojpeg ...               libraries, if it needs some
//
// The target then defines the two functions below. Each target is one file, so this is included once.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "guarded_mapping.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

using Bytes = std::span<const std::byte>;

// What is done with an input. To return is to be content.
void one(Bytes input);
// Valid inputs, from which others are made.
std::vector<std::string> seeds();

inline std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span{text.data(), text.size()}); }

[[noreturn]] inline void found(const std::string& what) {
  std::fprintf(stderr, "FOUND: %s\n", what.c_str());
  std::abort();
}
inline void require(bool truth, const std::string& what) {
  if (!truth) found(what);
}

// Takes numbers and bytes off the front; what is missing is zero.
class Input {
 public:
  explicit Input(Bytes bytes) : rest_{bytes} {}
  template <class T>
  T number() {
    static_assert(std::is_integral_v<T>);
    T value{};
    const auto from = take(sizeof value);
    if (!from.empty()) std::memcpy(&value, from.data(), from.size());
    return value;
  }
  Bytes take(std::size_t most) {
    const auto result = rest_.first(most < rest_.size() ? most : rest_.size());
    rest_ = rest_.subspan(result.size());
    return result;
  }
  Bytes rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  Bytes rest_;
};

template <class T>
std::string little(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// A file in memory alone, which has the same name whatever it holds.
class File {
 public:
  File() : descriptor_{::memfd_create("fuzz", MFD_CLOEXEC)}, path_{"/proc/self/fd/" + std::to_string(descriptor_)} {
    require(descriptor_ >= 0, "no memory file");
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(descriptor_); }

  const std::string& write(Bytes bytes) {
    const auto size = static_cast<ssize_t>(bytes.size());
    require(::ftruncate(descriptor_, size) == 0 && ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == size,
            "the memory file cannot be written");
    return path_;
  }
  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

// Does it, and returns whether it came to an end. What it throws must be one of these families, in a sentence that says `name`.
template <class... Families, class Body>
bool documented(std::string_view name, const Body& body) {
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    const bool known = (... || (dynamic_cast<const Families*>(&error) != nullptr));
    require(known, std::string{"an error that is not documented: "} + typeid(error).name() + ": " + error.what());
    require(std::string_view{error.what()}.find(name) != std::string_view::npos,
            "a sentence that does not say \"" + std::string{name} + "\": " + error.what());
    return false;
  }
}

}  // namespace replicator::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const folder = std::getenv("REPLICATOR_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  int number = 0;
  for (const std::string& seed : replicator::fuzz::seeds())
    std::ofstream{folder + ("/seed" + std::to_string(number++)), std::ios::binary} << seed;
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  replicator::fuzz::one({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
