// SPDX-License-Identifier: Apache-2.0
// JobAddress: a small file that says where the first process of a running elastic job listens for processes that come back. It
// lies in the folder of --elastic-arbiter, which all hosts share. So a newcomer finds the job on machines that its MASTER_ADDR
// does not name, and at another port.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/core/sha256.hpp>
#include <replicator/io/file.hpp>
#include <replicator/io/read_text.hpp>
#include <replicator/job/process_environment.hpp>
#include <span>
#include <string>
#include <string_view>

namespace replicator::detail::transport::detail {

struct Endpoint {
  std::string address;  // numeric
  std::uint16_t port = 0;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Whoever reads the file believes nothing of it: the process that answers there must prove that it belongs to the job.
class JobAddress {
 public:
  // The file of the job that these processes have in common: they all know the same first address, port and name.
  static std::string path(const std::string& folder, const ProcessEnvironment& environment) {
    Sha256 hash;
    hash.update(environment.master_address + "\n" + std::to_string(environment.master_port) + "\n" + environment.job_name);
    return folder + "/job-at-" + hash.text().substr(0, 16) + ".address";
  }
  // `path`: empty for none; then the functions do nothing.
  explicit JobAddress(std::string path) : path_{std::move(path)} {}

  // Nothing where there is no such file, or it is damaged.
  std::optional<Endpoint> read() const {
    const auto text = path_.empty() ? std::nullopt : read_text(path_);
    if (!text || !text->starts_with(title) || !text->ends_with('\n')) return {};
    const auto line = text->substr(title.size(), text->size() - title.size() - 1);
    const auto space = line.find(' ');
    const auto port = space == std::string::npos ? std::nullopt : whole_number<int>(line.substr(space + 1), 1, 65535);
    if (!port || line.size() > 100) return {};
    return Endpoint{line.substr(0, space), static_cast<std::uint16_t>(*port)};
  }
  // Returns false where it cannot be written.
  bool write(const Endpoint& here) const {
    if (path_.empty()) return true;
    const auto text = std::string{title} + here.address + " " + std::to_string(here.port) + "\n";
    try {
      io::write_file(path_, std::as_bytes(std::span{text}));
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  // Removes the file if it still says this.
  void remove(const Endpoint& here) const {
    if (read() == here) ::unlink(path_.c_str());
  }
  bool exists() const { return !path_.empty(); }

 private:
  static constexpr std::string_view title = "the first process of an elastic job listens at ";
  std::string path_;
};

}  // namespace replicator::detail::transport::detail
