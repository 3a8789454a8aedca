// SPDX-License-Identifier: Apache-2.0
// The families of errors. Messages say: what was asked, what was found, where, how to mend it.
#pragma once

#include <stdexcept>
#include <string>

namespace replicator {

// What every error of the library is.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A mistake of the user, found while building: shapes, graphs, options. Nothing has moved yet.
class BuildError : public Error {
 public:
  using Error::Error;
};

// Data that cannot be used: of a file, which the message names, or of a step, whose line it names.
class DataError : public Error {
 public:
  using Error::Error;
};

// A check inside a step found something false; the message names replica, step and line.
class CheckError : public Error {
 public:
  using Error::Error;
};

// A device that is missing or failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// A failure of the wire or of a peer, found while running.
class CommunicationError : public Error {
 public:
  CommunicationError(const std::string& message, int culprit) : Error(message), culprit_{culprit} {}
  // The process (host) to blame, or -1 where none is known.
  int culprit() const noexcept { return culprit_; }

 private:
  int culprit_;
};

}  // namespace replicator
