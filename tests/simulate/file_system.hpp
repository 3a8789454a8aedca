// SPDX-License-Identifier: Apache-2.0
// FileSystem: the files below /sim, in memory. It knows what a program sees, and what a disk would hold after a loss of power.
//
// - The content of a file is on the disk after fsync of the file. Before that, any first part of what was written since may be
//   there, and a block of it may be torn.
// - A name is on the disk after fsync of its folder. Before that, each change of a name may be there or not.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "random.hpp"

namespace simulate {

struct Node {
  bool folder = false;
  std::string content, durable;
  std::map<std::string, std::shared_ptr<Node>> names, durable_names;  // of a folder
  int locked_by = 0;
};

struct OpenFile {
  std::shared_ptr<Node> node;
  std::size_t at = 0;
  bool writable = false;
};

class FileSystem {
 public:
  FileSystem() : root_{std::make_shared<Node>()} { root_->folder = true; }

  static bool has(const char* path) { return path != nullptr && std::string_view{path}.starts_with("/sim"); }

  // All return 0, or an errno.
  int open(const std::string& path, int flags, OpenFile& file);
  int write(OpenFile& file, const void* bytes, std::size_t size, std::size_t& written);
  int sync(OpenFile& file);
  int rename(const std::string& from, const std::string& to);
  int link(const std::string& from, const std::string& to);
  int unlink(const std::string& path);
  int make_folder(const std::string& path);
  std::shared_ptr<Node> find(const std::string& path) const;
  std::vector<std::string> names(const std::string& path) const;
  static void fill(const Node& node, struct stat& status);

  // What may be on the disk after a loss of power now. Open files are lost.
  void lose_power(Random& random);

  // Faults. `space`: bytes that may still be written; `short_writes`: a write may take a part only.
  std::size_t space = SIZE_MAX;
  bool short_writes = false, interrupted_writes = false, failing_sync = false;
  std::uint64_t operations = 0;  // that change something, so far
  Random* random = nullptr;      // for short writes

 private:
  // The folder of a path and its last name.
  std::shared_ptr<Node> folder_of(const std::string& path, std::string& name) const;
  void lose_power(Node& node, Random& random);

  std::shared_ptr<Node> root_;
};

}  // namespace simulate
