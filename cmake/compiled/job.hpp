// SPDX-License-Identifier: Apache-2.0
// Instantiates jobs: the rendezvous with the other processes, and the thread that watches them. Each header of this
// folder is a list of REPLICATOR_TEMPLATE lines. The unit of the same name defines that as `template` and holds the
// code; units that call it use `extern template`.
#pragma once

#include <replicator/job/job.hpp>
#include <replicator/job/rendezvous.hpp>

namespace replicator::detail::transport {

REPLICATOR_TEMPLATE ProcessEnvironment find_environment<>(const RendezvousOptions&);
REPLICATOR_TEMPLATE Job::Job(const ProcessEnvironment&, const JobOptions&);
REPLICATOR_TEMPLATE Job::Job(detail::Membership, int, const std::string&, const JobOptions&);
REPLICATOR_TEMPLATE std::vector<detail::Bytes> Job::exchange<>(std::span<const std::byte>, std::string_view);
REPLICATOR_TEMPLATE void Job::abort<>(const std::string&, int);
REPLICATOR_TEMPLATE void Job::suspect<>(int, const std::string&);
REPLICATOR_TEMPLATE void Job::give_up_on<>(int, const std::string&);
REPLICATOR_TEMPLATE std::string Job::address<>();
REPLICATOR_TEMPLATE Job::Hook Job::on_abort<>(std::function<void()>);
REPLICATOR_TEMPLATE void Job::unhook<>(std::uint64_t);
REPLICATOR_TEMPLATE void Job::leave<>();
REPLICATOR_TEMPLATE void Job::end<>() noexcept;
REPLICATOR_TEMPLATE void Job::run<>();

}  // namespace replicator::detail::transport
