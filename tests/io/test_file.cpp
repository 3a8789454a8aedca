// SPDX-License-Identifier: Apache-2.0
// Existing things at the path of an output file. Devices are our own nodes in a temporary folder, never those of the
// machine.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <replicator/io/file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../input/temporary_folder.hpp"

namespace test_file {

using namespace replicator;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

void replace(const std::string& path, std::string_view text) {
  io::FileReplacement file{path};
  file.write(std::as_bytes(std::span{text}));
  file.commit();
}
std::string text_of(const std::string& path) {
  std::vector<std::byte> bytes;
  io::read_file(path, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
auto files_in(const std::string& folder) { return std::distance(fs::directory_iterator{folder}, {}); }

// "null" or "full" as the machine has them; false, and a warning, where none can be made or used.
bool made_device(const std::string& path, unsigned minor) {
  if (::mknod(path.c_str(), S_IFCHR | 0600, ::makedev(1, minor)) == 0) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd >= 0) return ::close(fd), true;
  }
  WARN("skipped: this user, or the file system of temporary files, has no device nodes: " << std::strerror(errno));
  return false;
}

}  // namespace

TEST_CASE("a symbolic link stays, and the file that it leads to is replaced beside itself") {
  const TemporaryFolder folder;
  const auto target = folder.write("far/target", "old"), link = folder.path() + "/link", relative = folder.path() + "/far/relative";
  fs::create_symlink("far/relative", link);
  fs::create_symlink("target", relative);
  io::require_writable("--trace", link);
  replace(link, "new");
  CHECK(text_of(target) == "new");
  CHECK(fs::is_symlink(link));
  CHECK(fs::is_symlink(relative));
  CHECK(files_in(folder.path()) == 2);
  CHECK(files_in(folder.path() + "/far") == 2);
}

TEST_CASE("a symbolic link to nothing makes the file that it names") {
  const TemporaryFolder folder;
  const auto link = folder.path() + "/link";
  fs::create_symlink("target", link);
  replace(link, "new");
  CHECK(text_of(folder.path() + "/target") == "new");
  CHECK(fs::is_symlink(link));
}

TEST_CASE("symbolic links that lead in a circle are refused by name") {
  const TemporaryFolder folder;
  const auto link = folder.path() + "/link";
  fs::create_symlink("link", link);
  CHECK_THROWS_WITH(io::FileReplacement{link}, Contains(link) && Contains("follow the links"));
}

TEST_CASE("a named pipe is written, not replaced, and only then opened") {
  const TemporaryFolder folder;
  const auto pipe = folder.path() + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  io::require_writable("--trace", pipe);  // nobody reads yet: it would wait
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  replace(pipe, "words");
  std::array<char, 16> got{};
  const auto length = ::read(reader, got.data(), got.size());
  ::close(reader);
  REQUIRE(length == 5);
  CHECK(std::string_view{got.data(), 5} == "words");
  CHECK(fs::is_fifo(pipe));
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a device is written, not replaced") {
  const TemporaryFolder folder;
  const auto null = folder.path() + "/null";
  if (!made_device(null, 3)) return;
  io::require_writable("--trace", null);
  replace(null, "words");
  CHECK(fs::is_character_file(null));
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a device that takes nothing is an error that names it") {
  const TemporaryFolder folder;
  const auto full = folder.path() + "/full";
  if (!made_device(full, 7)) return;
  CHECK_THROWS_WITH(replace(full, "words"), Contains(full) && Contains("cannot write") && Contains(std::strerror(ENOSPC)));
  CHECK(fs::is_character_file(full));
}

TEST_CASE("what stdout goes to is written behind what was printed, though it is a file") {
  const TemporaryFolder folder;
  const auto path = folder.write("printed");
  std::fflush(stdout);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
      ::dup2(fd, STDOUT_FILENO);
      std::fputs("before ", stdout);
      const bool known = io::written_in_place("/proc/self/fd/1");
      replace("/proc/self/fd/1", "words");
      std::fputs(" after", stdout);
      std::fflush(stdout);
      ::_exit(known ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(text_of(path) == "before words after");
}

TEST_CASE("a folder is refused before anything is written, in a sentence that begins with the flag") {
  const TemporaryFolder folder;
  for (const auto& path : {folder.path(), folder.path() + "/"}) {
    CHECK_THROWS_WITH(io::require_writable("--trace", path), Contains("--trace: " + path) && Contains("is a folder"));
    CHECK_THROWS_WITH(io::FileReplacement{path}, Contains(path) && Contains("is a folder"));
  }
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("a file in no folder is refused with the flag, and trying a path leaves nothing behind") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(io::require_writable("--save", folder.path() + "/none/w"), Contains("--save: ") && Contains("none/w"));
  io::require_writable("--save", folder.path() + "/w");
  CHECK(files_in(folder.path()) == 0);
}

}  // namespace test_file
