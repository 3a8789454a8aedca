// SPDX-License-Identifier: Apache-2.0
// Registers the UCX transport, so that `--transport ucx` works and `auto` uses it between machines.
#pragma once

#include <replicator/collectives/connect/connect_hosts.hpp>
#include <replicator/transport/ucx.hpp>
#include <replicator/transport/ucx_process.hpp>

namespace replicator::detail::collectives::detail {

inline const bool ucx_registered = [] {
  ucx_slot.store(&host_transport_of<transport::Ucx>);
  transport::detail::restrain_ucx();
  return true;
}();

}  // namespace replicator::detail::collectives::detail
