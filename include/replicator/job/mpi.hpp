// SPDX-License-Identifier: Apache-2.0
// Jobs inside of a program that has called MPI_Init: the processes are those of an MPI communicator. No other header contains
// anything of MPI.
#pragma once

#define OMPI_SKIP_MPICXX 1  // leaves out the C++ bindings, which MPI 3 removed
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/core/processes.hpp>
#include <replicator/job/host_identity.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/token_authentication.hpp>
#include <replicator/job/trust.hpp>
#include <replicator/job/wire/socket_address.hpp>
#include <replicator/job/wire/tcp.hpp>

namespace replicator {

namespace detail::transport {

// A collective call of MPI that does not block. It ends at a deadline, which MPI's own calls do not have.
class MpiCall {
 public:
  // `begin(buffer, request)` starts the call.
  MpiCall(MPI_Comm comm, std::string bytes, const std::function<int(char*, MPI_Request*)>& begin) : comm_{comm}, buffer_{std::make_unique<std::string>(std::move(bytes))} {
    if (begin(buffer_->data(), &request_) != MPI_SUCCESS) throw CommunicationError{"MPI refuses a collective call on the communicator of processes_of", -1};
  }
  std::string await(std::chrono::milliseconds deadline) {
    const auto until = std::chrono::steady_clock::now() + deadline;
    for (int done = 0;;) {
      if (MPI_Test(&request_, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) throw CommunicationError{"MPI lost a collective call on the communicator of processes_of", -1};
      if (done) return std::move(*buffer_);
      if (std::chrono::steady_clock::now() > until) break;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    static_cast<void>(buffer_.release());  // MPI may still write there
    int rank = 0, size = 0;
    MPI_Comm_rank(comm_, &rank);
    MPI_Comm_size(comm_, &size);
    throw CommunicationError{"rank " + std::to_string(rank) + " waits for the other " + std::to_string(size - 1) +
                                 " process(es) of its MPI communicator; not all have called processes_of within " + detail::seconds_text(deadline) +
                                 ": it is collective over the communicator",
                             -1};
  }

 private:
  MPI_Comm comm_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::unique_ptr<std::string> buffer_;
};

// Whether all processes of the communicator can share memory.
inline bool on_one_host(MPI_Comm comm, std::chrono::milliseconds deadline) {
  Hasher hasher;
  hasher.text(host_identity());
  const std::uint64_t here = hasher.result().low, both[] = {here, ~here};
  std::uint64_t least[2];
  const auto result = MpiCall{comm, std::string{reinterpret_cast<const char*>(both), sizeof both}, [&](char* buffer, MPI_Request* request) {
                                return MPI_Iallreduce(MPI_IN_PLACE, buffer, 2, MPI_UINT64_T, MPI_MIN, comm, request);
                              }}
                          .await(deadline);
  std::memcpy(least, result.data(), sizeof least);
  return least[0] == here && least[1] == ~here;
}

}  // namespace detail::transport

// Collective over `comm`, which may be a part of MPI_COMM_WORLD. MPI must be initialised. Ranks and size are the communicator's.
// Process 0 listens on a free port, makes a secret, and sends both to the others by MPI; nothing else uses MPI, then or later.
//
// `interface`: the only network interface to use, by name or address; empty: any. Throws BuildError, on all processes, for an
// interface of process 0 without an address, and CommunicationError where not all processes call it within `deadline`.
//
//   rp::World world{rp::processes_of(comm)};
//   deployment.processes = rp::processes_of(MPI_COMM_WORLD);
inline Processes processes_of(MPI_Comm comm, const std::string& interface = {}, std::chrono::milliseconds deadline = std::chrono::seconds{60}) {
  namespace transport = detail::transport;
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (!initialised) throw BuildError{"processes_of was called before MPI_Init: initialise MPI first"};
  if (comm == MPI_COMM_NULL) throw BuildError{"processes_of got MPI_COMM_NULL: this process is not of the communicator"};
  transport::ProcessEnvironment result;
  MPI_Comm_rank(comm, &result.rank);
  MPI_Comm_size(comm, &result.world_size);
  result.interface = interface;
  if (result.world_size == 1) return {};
  const bool one_host = transport::on_one_host(comm, deadline);
  std::string told(4096, '\0');  // "port:addresses token"
  if (result.rank == 0) {
    std::string text;
    try {
      result.job_token = transport::detail::random_token();
      result.master_address = interface.empty() && one_host ? "127.0.0.1" : transport::detail::own_addresses(interface);
      result.listener = std::make_shared<transport::FileDescriptor>(transport::detail::listen_on(0, transport::detail::listening_address(result), result.rank));
      result.master_port = transport::detail::port_of(result.listener->get());
      text = std::to_string(result.master_port) + ":" + result.master_address + " " + result.job_token;
      if (text.size() >= told.size()) throw BuildError{"this machine has more addresses than processes_of can send: name one with `interface`"};
    } catch (const Error& error) {  // the others wait for an answer, and throw the same
      text = std::string{"!"} + error.what();
      text.resize(std::min(text.size(), told.size() - 1));
    }
    text.copy(told.data(), text.size());
  }
  told = transport::MpiCall{comm, std::move(told), [&](char* buffer, MPI_Request* request) {
                              return MPI_Ibcast(buffer, 4096, MPI_CHAR, 0, comm, request);
                            }}
             .await(deadline);
  if (told[0] == '!') throw BuildError{std::string{"process 0: "} + (told.c_str() + 1)};
  const auto colon = told.find(':'), space = told.find(' ');
  result.master_port = static_cast<std::uint16_t>(transport::detail::number_variable("the port of process 0 (of MPI)", told.substr(0, colon), 1, 65535));
  result.master_address = told.substr(colon + 1, space - colon - 1);
  result.job_token = told.c_str() + space + 1;
  result.job_name = "MPI";
  return {result.rank, result.world_size, std::make_shared<transport::ProcessEnvironment>(result)};
}

}  // namespace replicator
