// SPDX-License-Identifier: Apache-2.0
// FolderArbiter: an arbiter for two equal parts of an elastic job. It is a folder that all hosts share, with one file for
// each epoch; whoever creates the file has the epoch.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/io/file.hpp>
#include <replicator/io/file_descriptor.hpp>
#include <replicator/io/read_text.hpp>
#include <replicator/job/elastic/claim_text.hpp>
#include <replicator/job/survivors.hpp>
#include <string>
#include <utility>

namespace replicator::detail::transport::detail {

// An Arbiter. The file is written under another name, brought to the disk, and then linked to its own name. link() creates
// nothing where the name exists, also on NFS. So a file is whole from the beginning, and never changes.
//
//   FOLDER/job-5f3a...-epoch-2.claim      see claim_text.hpp
class FolderArbiter {
 public:
  // `secret`: known only to the processes of this job. The files are named by its hash.
  FolderArbiter(std::string folder, std::uint64_t secret) : folder_{std::move(folder)}, secret_{secret} {}

  Claim operator()(const Claim& wanted, const std::function<void()>& = {}) const {
    const auto path = path_of(wanted.epoch.number);
    const auto own = folder_ + "/." + job_of_secret(secret_) + "-" + io::detail::random_name() + ".claim";
    write(own, claim_text(wanted));
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
    return read_claim(*text, number, path_of(number));
  }
  std::string where() const { return "in the folder --elastic-arbiter " + folder_ + ": give all processes one folder that all hosts share"; }

 private:
  std::string path_of(std::uint64_t number) const { return folder_ + "/" + claim_name(secret_, number) + ".claim"; }

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

  std::string folder_;
  std::uint64_t secret_;
};

}  // namespace replicator::detail::transport::detail
