// SPDX-License-Identifier: Apache-2.0
// The exception types. A message says what was asked, what was found, where, and how to mend it.
#pragma once

#include <replicator/core/printable.hpp>
#include <stdexcept>
#include <string>

namespace replicator {

// The base of all errors that the library throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A mistake of the user in shapes, graphs or options. It is found while building, before any data moves.
class BuildError : public Error {
 public:
  using Error::Error;
};

// Unusable data. The message names the file, or the line of the step that produced the data. It may quote the data: control
// characters except line ends are written as \x1b, say, and the middle of a message above 2,000 bytes is left out.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error{detail::printable(message, 2000, detail::LineEnds::keep)} {}
};

// A check inside a step failed. The message names the replica, the step and the line.
class CheckError : public Error {
 public:
  using Error::Error;
};

// A device is missing or has failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// The network or a peer failed while running.
class CommunicationError : public Error {
 public:
  CommunicationError(const std::string& message, int culprit) : Error(message), culprit_{culprit} {}
  // The process (host) that caused the failure, or -1 if unknown.
  int culprit() const noexcept { return culprit_; }

 private:
  int culprit_;
};

}  // namespace replicator
