// SPDX-License-Identifier: Apache-2.0
// A UCX context with its worker: the part of an endpoint that is made before its peers are known.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <replicator/job/wire/frame.hpp>
#include <replicator/transport/ucx_status.hpp>
#include <string>
#include <system_error>

namespace replicator::detail::transport::detail {

// Owns the context and the worker.
class UcxWorker {
 public:
  // `interface`: as in Job::interface().
  explicit UcxWorker(const std::string& interface)
      : context_{make_context(interface), ucp_cleanup}, worker_{make_worker(context_.get()), ucp_worker_destroy} {
    check_ucx(ucp_worker_get_efd(worker_.get(), &event_descriptor_), "asking for an event descriptor");
  }

  ucp_worker_h get() const { return worker_.get(); }
  int event_descriptor() const { return event_descriptor_; }

  // Leaves worker and context to the end of the process. Destroying them after a peer has died fails assertions of UCX
  // 1.13, which end the process by a signal.
  void abandon() {
    static_cast<void>(worker_.release());
    static_cast<void>(context_.release());
  }

  // The address with which a peer reaches this worker.
  Bytes address() const {
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    check_ucx(ucp_worker_get_address(worker_.get(), &address, &length), "asking for the worker's address");
    const auto* first = reinterpret_cast<const std::byte*>(address);
    Bytes result{first, first + length};
    ucp_worker_release_address(worker_.get(), address);
    return result;
  }

 private:
  static ucp_context_h make_context(const std::string& interface) {
    ucp_config_t* config = nullptr;
    check_ucx(ucp_config_read(nullptr, nullptr, &config), "reading the UCX_ variables");
    const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> owner{config, ucp_config_release};
    // All networks, but no shared memory: over shared memory UCX does not notice a dead peer. The user's settings take
    // priority.
    if (std::getenv("UCX_TLS") == nullptr)
      check_ucx(ucp_config_modify(config, "TLS", "^sm"), "excluding shared memory");
    if (!interface.empty() && std::getenv("UCX_NET_DEVICES") == nullptr)
      check_ucx(ucp_config_modify(config, "NET_DEVICES", interface.c_str()), "keeping to one network interface");
    // By default UCX asks the receiver before it sends more than 20 kB (rendezvous). The answer queues behind all that the
    // receiver sends itself. With several collectives in flight, the two directions then block each other in turn: steps of
    // ResNet-18 took up to 40 % longer. With tcp alone, asking has no advantage.
    if (std::getenv("UCX_RNDV_THRESH") == nullptr && (!interface.empty() || !has_rdma()))
      check_ucx(ucp_config_modify(config, "RNDV_THRESH", "inf"), "sending without asking");
    // By default a flush sends something to each peer, and waits until all have answered. Ucx::flushed() is about this process alone.
    if (std::getenv("UCX_FLUSH_WORKER_EPS") == nullptr)
      check_ucx(ucp_config_modify(config, "FLUSH_WORKER_EPS", "n"), "flushing without asking");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    ucp_context_h context = nullptr;
    check_ucx(ucp_init(&params, config, &context), "opening the network");
    return context;
  }

  // Whether there is InfiniBand or RoCE. `interface` cannot name such a device.
  static bool has_rdma() {
    std::error_code failure;
    return !std::filesystem::is_empty("/sys/class/infiniband", failure) && !failure;
  }

  static ucp_worker_h make_worker(ucp_context_h context) {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // made by one thread, then used by another
    params.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
    ucp_worker_h worker = nullptr;
    check_ucx(ucp_worker_create(context, &params, &worker), "creating a worker");
    return worker;
  }

  std::unique_ptr<ucp_context, decltype(&ucp_cleanup)> context_;
  std::unique_ptr<ucp_worker, decltype(&ucp_worker_destroy)> worker_;
  int event_descriptor_ = -1;
};

}  // namespace replicator::detail::transport::detail
