// SPDX-License-Identifier: Apache-2.0
// A folder that is removed after the test.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <replicator/io/file.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "replicator_input_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error{"cannot make a temporary folder"};
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }

  // Writes a file, and the folders it lies in.
  std::string write(const std::string& name, std::span<const std::byte> content) const {
    const std::filesystem::path path = std::filesystem::path{path_} / name;
    std::filesystem::create_directories(path.parent_path());
    replicator::io::write_file(path.string(), content);
    return path.string();
  }
  std::string write(const std::string& name, std::string_view content = "") const {
    return write(name, std::as_bytes(std::span{content.data(), content.size()}));
  }

 private:
  std::string path_;
};
