// SPDX-License-Identifier: Apache-2.0
// Translates UCX status codes into errors of this library.
#pragma once

#include <ucs/type/status.h>

#include <replicator/core/error.hpp>
#include <string>

namespace replicator::detail::transport::detail {

// Families of UCX failures.
enum class UcxFailure {
  usage,
  device,
  wire
};

// The blame for a status: usage or configuration of UCX, this host's devices, or the wire and the peer behind it.
inline UcxFailure ucx_failure(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_NOT_IMPLEMENTED:
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NO_ELEM:
    case UCS_ERR_ALREADY_EXISTS:
      return UcxFailure::usage;
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_SHMEM_SEGMENT:
    case UCS_ERR_EXCEEDS_LIMIT:
      return UcxFailure::device;
    default:
      return UcxFailure::wire;
  }
}

// Throws BuildError, DeviceError or CommunicationError. `what` is the operation; `culprit` is the process to blame, or -1.
[[noreturn]] inline void throw_ucx(ucs_status_t status, const std::string& what, int culprit) {
  const std::string message = "ucx: " + what + ": " + ucs_status_string(status);
  switch (ucx_failure(status)) {
    case UcxFailure::usage:
      throw BuildError{message + " (is UCX_TLS, UCX_NET_DEVICES or another UCX_ variable wrong?)"};
    case UcxFailure::device:
      if (status == UCS_ERR_NO_DEVICE)
        throw DeviceError{message + ": UCX may use no network that is up on this host. `ip link` lists them; --interface, UCX_TLS and UCX_NET_DEVICES choose among them"};
      throw DeviceError{message};
    case UcxFailure::wire:
      break;
  }
  throw CommunicationError{message, culprit};
}

inline void check_ucx(ucs_status_t status, const std::string& what) {
  if (status != UCS_OK) throw_ucx(status, what, -1);
}

}  // namespace replicator::detail::transport::detail
