// SPDX-License-Identifier: Apache-2.0
// The member functions of Ucx. Include ucx.hpp instead.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <replicator/transport/ucx.hpp>
#include <replicator/transport/ucx_limits.hpp>
#include <thread>

namespace replicator::detail::transport {

inline std::vector<std::unique_ptr<Ucx>> Ucx::create(Job& job, const std::vector<int>& process_of_rank) {
  detail::check_process_table(job, process_of_rank);
  if (process_of_rank.size() > most_ranks)
    throw BuildError{"ucx carries " + std::to_string(most_ranks) + " ranks, not " +
                     std::to_string(process_of_rank.size())};
  const auto hosts = host_of_processes(job);
  const auto ranks_here = std::count_if(process_of_rank.begin(), process_of_rank.end(), [&](int owner) {
    return hosts[static_cast<std::size_t>(owner)] == hosts[static_cast<std::size_t>(job.rank())];
  });
  const Spin spin{static_cast<int>(ranks_here), cores_of_host(job, hosts), Spin::Crowded::sleep};
  const auto my_ranks = std::count(process_of_rank.begin(), process_of_rank.end(), job.rank());
  detail::require_room_for_ucx(static_cast<std::uint64_t>(my_ranks), process_of_rank.size() - 1);
  // Long enough for the heartbeats to notice a link that stays down: their error then says whom it cuts off.
  const auto until = Clock::now() + 2 * job.options().dead_after;
  std::vector<std::unique_ptr<Ucx>> result;
  detail::FrameWriter mine{detail::FrameKind::gather};
  for (std::size_t r = 0; r < process_of_rank.size(); ++r)
    if (process_of_rank[r] == job.rank()) {
      result.emplace_back(new Ucx{job, static_cast<int>(r), process_of_rank, spin, until});
      mine.blob(result.back()->worker_->address());
    }
  const auto all = job.exchange(mine.fields(), "ucx: addresses");
  std::vector<detail::FrameReader> readers;
  for (const auto& fields : all) readers.emplace_back(fields);
  std::vector<detail::Bytes> addresses;
  for (const int owner : process_of_rank) addresses.push_back(readers[static_cast<std::size_t>(owner)].blob());
  for (const auto& endpoint : result)
    for (std::size_t r = 0; r < addresses.size(); ++r) endpoint->peers_[r].address = addresses[r];
  return result;
}

inline Ucx::Ucx(Job& job, int rank, const std::vector<int>& process_of_rank, const Spin& spin, Clock::time_point until)
    : job_{job}, rank_{rank}, spin_{spin}, worker_{open_worker(job, until)}, wakeup_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
  for (const int owner : process_of_rank) peers_.push_back({nullptr, owner, {}, UCS_OK, false});
  hook_ = job.on_abort([descriptor = wakeup_.get()] {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(descriptor, &one, sizeof one));
  });
}

// UCX leaves out a network whose link is down while it starts. So this waits, until a time, for the link by which the other
// processes reach this one.
inline std::unique_ptr<detail::UcxWorker> Ucx::open_worker(Job& job, Clock::time_point until) {
  const auto mine = job.address();
  const auto waits = [&] {
    if (mine.empty() || Clock::now() >= until) return false;
    const auto all = detail::interface_addresses();
    return std::none_of(all.begin(), all.end(), [&](const auto& entry) { return entry.running && entry.address.text() == mine; });
  };
  for (;;) {
    if (!waits()) try {
        auto worker = std::make_unique<detail::UcxWorker>(job.interface());
        if (!waits()) return worker;
      } catch (const DeviceError&) {
        if (!waits()) throw;
      }
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    job.check();
  }
}

// Connects at the first message. UCX would complain when it closes a connection that was never used.
inline ucp_ep_h Ucx::endpoint_to(int rank) {
  auto& peer = peers_.at(static_cast<std::size_t>(rank));
  if (peer.endpoint != nullptr) return peer.endpoint;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_failure;
  params.err_handler.arg = &peer;
  const auto status = ucp_ep_create(worker_->get(), &params, &peer.endpoint);
  if (status == UCS_OK) return peer.endpoint;
  const auto what = "connecting rank " + std::to_string(rank_) + " to rank " + std::to_string(rank) + " in " +
                    job_.describe(peer.process);
  if (detail::ucx_failure(status) == detail::UcxFailure::wire)
    job_.give_up_on(peer.process, "ucx: " + what + ": " + ucs_status_string(status));
  detail::throw_ucx(status, what, peer.process);
}

// After a failed assertion of UCX the worker is left alone. Such assertions fail when a peer dies, which the job finds out by itself.
// If it does not, this process reports its own failure.
inline void Ucx::fail(const detail::UcxAssertion& assertion) {
  assertion_ = assertion.what();
  verdict_by_ = Clock::now() + 2 * job_.options().dead_after;
  std::fprintf(stderr, "ucx: rank %d goes on without it after an assertion failed: %s\n", rank_, assertion_.c_str());
}

inline Ucx::~Ucx() {
  try {
    const detail::UcxGuard guard;
    if (assertion_.empty()) close();
  } catch (const detail::UcxAssertion& assertion) {
    fail(assertion);
  }
  if (!assertion_.empty()) worker_->abandon();
}

inline void Ucx::close() {
  std::vector<void*> requests{std::exchange(flush_, nullptr)};
  for (const auto& operation : operations_) {
    if (operation.request == nullptr || UCS_PTR_IS_ERR(operation.request)) continue;
    ucp_request_cancel(worker_->get(), operation.request);
    requests.push_back(operation.request);
  }
  const auto until = Clock::now() + (job_.aborted() ? job_.options().grace : job_.options().dead_after);
  ucp_request_param_t plain{};
  if (!job_.aborted()) requests.push_back(ucp_worker_flush_nbx(worker_->get(), &plain));
  settle(std::move(requests), until);
  if (job_.aborted()) {
    worker_->abandon();
    return;
  }
  settle(drop_unexpected(), until);
  requests.clear();
  ucp_request_param_t force{};
  force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  force.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (const auto& peer : peers_)
    if (peer.endpoint != nullptr) requests.push_back(ucp_ep_close_nbx(peer.endpoint, &force));
  settle(std::move(requests), until);
  settle(drop_unexpected(), until);
}

// When the job ends, messages may have arrived that no receive will take. UCX would complain of each of them on the
// program's standard output.
inline std::vector<void*> Ucx::drop_unexpected() {
  std::vector<void*> requests;
  ucp_tag_recv_info_t info{};
  while (ucp_tag_message_h message = ucp_tag_probe_nb(worker_->get(), 0, 0, 1, &info)) {
    ucp_request_param_t plain{};
    requests.push_back(ucp_tag_msg_recv_nbx(worker_->get(), nullptr, 0, message, &plain));
  }
  return requests;
}

// Makes progress until the requests are complete or the time is over, then frees the requests.
inline void Ucx::settle(std::vector<void*> requests, Clock::time_point until) {
  std::erase_if(requests, [](void* request) { return request == nullptr || UCS_PTR_IS_ERR(request); });
  const auto pending = [](void* request) { return ucp_request_check_status(request) == UCS_INPROGRESS; };
  while (std::any_of(requests.begin(), requests.end(), pending) && Clock::now() < until) {
    if (ucp_worker_progress(worker_->get()) != 0 || ucp_worker_arm(worker_->get()) == UCS_ERR_BUSY) continue;
    pollfd event{worker_->event_descriptor(), POLLIN, 0};
    ::poll(&event, 1, detail::remaining_ms(until, 50));
  }
  for (void* request : requests) ucp_request_free(request);
}

inline Region Ucx::allocate(std::size_t bytes) {
  job_.check();
  const auto whole = detail::round_to_pages(bytes == 0 ? 1 : bytes);
  void* data = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw DeviceError{"rank " + std::to_string(rank_) + " cannot allocate " + std::to_string(bytes) +
                      " bytes: " + errno_text(errno)};
  const auto id = next_region_++;
  regions_.try_emplace(id, static_cast<std::byte*>(data), whole);
  return {static_cast<std::byte*>(data), bytes, id};
}

// No peer reads this memory, so it is freed at once. UCX may have registered it with a network card. It notices by itself that the
// memory is unmapped (UCX_MEM_EVENTS, on by default).
inline void Ucx::release(Region region) { regions_.erase(region.id); }

// The slot's 56 bits and the source in 64: 12 bits of rank, 28 of collective and channel, 24 of instruction. Throws
// BuildError where the instruction does not fit.
inline std::uint64_t Ucx::tag(int source, Slot slot) {
  const std::uint64_t instruction = slot.value() & ((std::uint64_t{1} << 28) - 1);
  if (instruction >= (std::uint64_t{1} << 24))
    throw BuildError{"a message tag is out of range for ucx (" + detail::slot_text(slot.value()) + ")"};
  return (static_cast<std::uint64_t>(source) << 52) | ((slot.value() >> 28) << 24) | instruction;
}

inline Ticket Ucx::send(std::span<const std::byte> out, int peer, Slot slot) {
  sent_to_ = sent_to_ == nobody || sent_to_ == peer ? peer : several;
  return post({nullptr, peer, false, slot.value(), out.size()}, [&] {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    return ucp_tag_send_nbx(endpoint_to(peer), out.data(), out.size(), tag(rank_, slot), &params);
  });
}

inline Ticket Ucx::recv(std::span<std::byte> in, int peer, Slot slot) {
  return post({nullptr, peer, true, slot.value(), in.size()}, [&] {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    return ucp_tag_recv_nbx(worker_->get(), in.data(), in.size(), tag(peer, slot), ~std::uint64_t{0}, &params);
  });
}

// `request`: posts the message. After a failed assertion of UCX the ticket is that of a broken connection.
template <class Request>
Ticket Ucx::post(const Operation& operation, Request request) {
  job_.check();
  if (assertion_.empty()) try {
      const detail::UcxGuard guard;
      return open(request(), operation);
    } catch (const detail::UcxAssertion& assertion) {
      fail(assertion);
    }
  return open(UCS_STATUS_PTR(UCS_ERR_CONNECTION_RESET), operation);
}

inline Ticket Ucx::open(void* request, const Operation& operation) {
  const auto& peer = peers_[static_cast<std::size_t>(operation.peer)];
  if (UCS_PTR_IS_ERR(request) && detail::ucx_failure(UCS_PTR_STATUS(request)) != detail::UcxFailure::wire)
    detail::throw_ucx(UCS_PTR_STATUS(request), "posting a message", peer.process);
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(operations_.size()));
    operations_.emplace_back();
  }
  const auto index = free_.back();
  free_.pop_back();
  operations_[index] = operation;
  operations_[index].request = request;  // on a broken connection the ticket stays open until the job's verdict
  return {index};
}

inline ucs_status_t Ucx::status_of(const Operation& operation) {
  if (operation.request == nullptr) return UCS_OK;
  return UCS_PTR_IS_ERR(operation.request) ? UCS_PTR_STATUS(operation.request)
                                           : ucp_request_check_status(operation.request);
}

inline bool Ucx::done(Ticket ticket) {
  if (!assertion_.empty()) {
    job_.check();
    return false;  // until the job's verdict
  }
  auto& operation = operations_[ticket.index];
  const auto status = status_of(operation);
  if (status != UCS_OK && status != UCS_ERR_MESSAGE_TRUNCATED) {
    if (status != UCS_INPROGRESS) peers_[static_cast<std::size_t>(operation.peer)].failure = status;
    job_.check();
    return false;
  }
  if (operation.receive) check_size(operation);
  if (operation.request != nullptr) ucp_request_free(std::exchange(operation.request, nullptr));
  free_.push_back(ticket.index);
  return true;
}

// UCX truncates a message that is too long, and accepts one that is too short. Both mean that the ranks' programs differ.
inline void Ucx::check_size(const Operation& operation) {
  ucp_tag_recv_info_t info{};
  const auto status = ucp_tag_recv_request_test(operation.request, &info);
  if (status == UCS_OK && info.length == operation.bytes) return;
  const auto sent = status == UCS_OK ? std::to_string(info.length) : "more than " + std::to_string(operation.bytes);
  job_.abort(detail::size_mismatch(operation.peer, sent, rank_, operation.bytes, operation.slot), job_.rank());
  job_.check();
}

// UCX copies a small message whose socket is full, and calls the send done. Such messages leave only while this rank makes progress.
// A flush that began earlier may not cover the latest ones, so another one follows it. UcxWorker's configuration makes a flush look
// at this process alone.
inline bool Ucx::flushed() try {
  const bool tickets_are_open = free_.size() < operations_.size();
  if (!assertion_.empty() || tickets_are_open) return true;
  const detail::UcxGuard guard;
  if (flush_ != nullptr) {
    if (ucp_request_check_status(flush_) == UCS_INPROGRESS) return false;
    ucp_request_free(std::exchange(flush_, nullptr));
  }
  ucp_request_param_t plain{};
  void* const request = ucp_worker_flush_nbx(worker_->get(), &plain);
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) {
    flush_ = request;
    return false;
  }
  sent_to_ = nobody;
  return true;
} catch (const detail::UcxAssertion& assertion) {
  fail(assertion);
  return true;
}

// Does not ask UCX, which would send something to each peer and wait for the answers.
inline int Ucx::unsent_to() { return sent_to_ == several ? -1 : sent_to_; }

inline void Ucx::progress() try {
  job_.check();
  if (!assertion_.empty()) {
    if (Clock::now() < verdict_by_) return;
    job_.abort("rank " + std::to_string(rank_) + " in " + job_.describe(job_.rank()) + " lost UCX, whose own assertion failed: " + assertion_, job_.rank());
    return job_.check();
  }
  const detail::UcxGuard guard;
  while (ucp_worker_progress(worker_->get()) != 0) {
  }
  report_broken();
} catch (const detail::UcxAssertion& assertion) {
  fail(assertion);
}

// Reports a broken connection only where an operation waits for it. A peer that has finished closes its connection in good
// order.
inline void Ucx::report_broken() {
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    auto& peer = peers_[r];
    if (peer.failure == UCS_OK || peer.reported) continue;
    const auto waits = [r](const Operation& operation) {
      return operation.peer == static_cast<int>(r) && status_of(operation) != UCS_OK;
    };
    if (std::none_of(operations_.begin(), operations_.end(), waits)) continue;
    peer.reported = true;
    job_.suspect(peer.process, "rank " + std::to_string(rank_) + " lost its connection to rank " + std::to_string(r) +
                                   " in " + job_.describe(peer.process) + ": " + ucs_status_string(peer.failure));
  }
}

inline bool Ucx::wait(const std::function<bool()>& ready, Clock::time_point until) {
  const auto look = [&] {
    progress();
    return ready();
  };
  if (spin_(look, until)) return true;
  while (Clock::now() < until) {
    sleep(until);
    if (look()) return true;
  }
  return ready();
}

// Sleeps until a message comes in, the job is aborted, or the time is over. With more processes than cores, polling would
// keep the sender from running: a message would take 4 ms instead of 9 us.
inline void Ucx::sleep(Clock::time_point until) try {
  if (!assertion_.empty()) {
    pollfd event{wakeup_.get(), POLLIN, 0};
    ::poll(&event, 1, detail::remaining_ms(std::min(until, verdict_by_), 60000));
    return;
  }
  const detail::UcxGuard guard;
  const auto status = ucp_worker_arm(worker_->get());
  if (status == UCS_ERR_BUSY) return;
  detail::check_ucx(status, "waiting");
  pollfd events[2] = {{worker_->event_descriptor(), POLLIN, 0}, {wakeup_.get(), POLLIN, 0}};
  ::poll(events, 2, detail::remaining_ms(until, 60000));
} catch (const detail::UcxAssertion& assertion) {
  fail(assertion);
}

}  // namespace replicator::detail::transport
