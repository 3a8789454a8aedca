// SPDX-License-Identifier: Apache-2.0
// FolderArbiter: an arbiter for two equal parts of an elastic job. It is a folder that all hosts share, with one file for
// each epoch; whoever creates the file has the epoch.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/core/sha256.hpp>
#include <replicator/io/file.hpp>
#include <replicator/io/file_descriptor.hpp>
#include <replicator/io/read_text.hpp>
#include <replicator/job/survivors.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace replicator::detail::transport::detail {

// An Arbiter. The file is written under another name, brought to the disk, and then linked to its own name. link() creates
// nothing where the name exists, also on NFS. So a file is whole from the beginning, and never changes.
//
//   FOLDER/job-5f3a...-epoch-2.claim      epoch 2 of an elastic job
//                                         taken by process 0 (pid 4711 on host-a)
//                                         lives of its processes: 0 0 -
class FolderArbiter {
 public:
  // `secret`: known only to the processes of this job. The files are named by its hash.
  FolderArbiter(std::string folder, std::uint64_t secret) : folder_{std::move(folder)} {
    Sha256 hash;
    hash.update(std::to_string(secret));
    job_ = "job-" + hash.text().substr(0, 16);
  }

  Claim operator()(const Claim& wanted) const {
    const auto path = path_of(wanted.epoch.number);
    const auto own = folder_ + "/." + job_ + "-" + io::detail::random_name() + ".claim";
    write(own, text_of(wanted));
    const int refused = ::link(own.c_str(), path.c_str()) == 0 ? 0 : errno;
    ::unlink(own.c_str());
    if (refused == 0 && !io::detail::flush_folder(folder_)) fail("bring the folder to the disk", errno);
    if (auto held = read(wanted.epoch.number)) return *held;
    if (refused == 0 || refused == EEXIST) fail("read " + path, errno);
    fail("create " + path, refused);
  }
  // The claim that holds a number. Throws CommunicationError for a file that is no claim.
  std::optional<Claim> read(std::uint64_t number) const {
    const auto text = read_text(path_of(number));
    if (!text) return {};
    std::istringstream lines{*text};
    Claim result{{number, {}}, {}};
    std::string title, by, lives, life;
    std::getline(lines, title);
    std::getline(lines, by);
    std::getline(lines, lives);
    if (title != title_of(number) || !by.starts_with(by_) || !lives.starts_with(lives_) || !text->ends_with('\n'))
      throw CommunicationError{path_of(number) + " is no claim of an elastic job: has somebody changed it?", -1};
    result.by = by.substr(by_.size());
    std::istringstream words{lives.substr(lives_.size())};
    while (words >> life) result.epoch.lives.push_back(life == "-" ? Epoch::absent : std::strtoull(life.c_str(), nullptr, 10));
    return result;
  }
  const std::string& folder() const { return folder_; }

 private:
  static constexpr std::string_view by_ = "taken by ", lives_ = "lives of its processes:";

  static std::string title_of(std::uint64_t number) { return "epoch " + std::to_string(number) + " of an elastic job"; }
  static std::string text_of(const Claim& claim) {
    std::string result = title_of(claim.epoch.number) + "\n" + std::string{by_} + claim.by + "\n" + std::string{lives_};
    for (const auto life : claim.epoch.lives) result += " " + (life == Epoch::absent ? "-" : std::to_string(life));
    return result + "\n";
  }
  std::string path_of(std::uint64_t number) const { return folder_ + "/" + job_ + "-epoch-" + std::to_string(number) + ".claim"; }

  [[noreturn]] void fail(const std::string& what, int number) const {
    throw CommunicationError{"--elastic-arbiter " + folder_ + ": this process cannot " + what + ": " + std::strerror(number) +
                                 ". Every host needs a folder there that all share, with hard links",
                             -1};
  }
  void write(const std::string& path, const std::string& text) const {
    const FileDescriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    errno = file ? ENOSPC : errno;  // a write that is cut short sets no number
    if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file.get()) == 0) return;
    const int why = errno;
    if (file) ::unlink(path.c_str());
    fail("write " + path, why);
  }

  std::string folder_, job_;
};

}  // namespace replicator::detail::transport::detail
