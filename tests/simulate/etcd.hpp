// SPDX-License-Identifier: Apache-2.0
// SimulatedEtcd: an etcd on a machine of its own, that answers what the library asks of one, in virtual time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include <replicator/core/error.hpp>
#include <replicator/io/base64.hpp>
#include <replicator/io/json/json_leaves.hpp>
#include <replicator/io/json/json_writer.hpp>
#include <replicator/job/etcd/etcd.hpp>

#include "kernel.hpp"

namespace simulate {

// While it lives, all HTTP of the simulated processes goes to it.
class SimulatedEtcd {
 public:
  explicit SimulatedEtcd(Kernel& kernel) : kernel_{kernel} {
    running_ = this;
    slot().store([](const std::string& url, const std::string& body, std::chrono::milliseconds limit) { return running_->answer(url, body, limit.count() * ms); });
  }
  SimulatedEtcd(const SimulatedEtcd&) = delete;
  SimulatedEtcd& operator=(const SimulatedEtcd&) = delete;
  ~SimulatedEtcd() {
    slot().store(nullptr);
    running_ = nullptr;
  }

  bool away = false;       // no request arrives
  double lost = 0;         // part of the requests, and of the answers, that are lost
  Time slowest = 10 * ms;  // of a request, and of an answer

 private:
  using Answer = replicator::detail::transport::detail::HttpAnswer;
  using Json = replicator::detail::JsonWriter;
  struct Value {
    std::string text{};  // as in the JSON
    std::int64_t revision = 0, lease = 0;
  };
  struct Lease {
    std::int64_t seconds = 0;
    Time end = 0;
  };
  static std::atomic<replicator::detail::transport::detail::HttpPost>& slot() { return replicator::detail::transport::detail::http_post_slot; }

  Answer answer(const std::string& url, const std::string& body, Time limit) {
    const Time until = kernel_.now() + limit;
    travel(until);
    const auto result = perform(url.substr(url.find("/v3/") + 4), body);
    travel(until);
    return result;
  }
  void travel(Time until) {
    const Time arrives = kernel_.now() + kernel_.random().between(100 * us, slowest);
    const bool arrived = !away && !kernel_.random().chance(lost) && arrives <= until;
    kernel_.sleep(arrived ? arrives : until);
    if (!arrived) throw replicator::CommunicationError{"timeout", -1};
  }

  Answer perform(const std::string& what, const std::string& body) {
    end_leases();
    const replicator::io::detail::JsonLeaves request{body, "a request"};
    const auto number = [&](const char* path) {
      const auto* text = request.find(path);
      return text == nullptr ? 0 : std::stoll(*text);
    };
    Json json;
    if (what == "kv/range") {
      json.object([&] { write_range(json, *request.find("/key")); });
    } else if (what == "kv/txn") {
      const auto key = *request.find("/compare/0/key");
      const auto lease = number("/requestPut/lease");
      const auto held = values_.find(key);
      const bool unchanged = (held == values_.end() ? 0 : held->second.revision) == number("/compare/0/mod_revision");
      if (unchanged && lease != 0 && !leases_.contains(lease)) return {404, "requested lease not found"};
      if (unchanged) values_[key] = {*request.find("/requestPut/value"), ++revision_, lease};
      json.object([&] {
        if (unchanged) json.member("succeeded", true);
      });
    } else if (what == "lease/grant") {
      leases_[++last_lease_] = {number("/TTL"), kernel_.now() + number("/TTL") * second};
      json.object([&] { json.member("ID", std::to_string(last_lease_)); });
    } else if (what == "lease/keepalive") {
      const auto lease = leases_.find(number("/ID"));
      if (lease != leases_.end()) lease->second.end = kernel_.now() + lease->second.seconds * second;
      json.object([&] {
        if (lease != leases_.end()) json.key("result").object([&] { json.member("TTL", std::to_string(lease->second.seconds)); });
      });
    } else {  // lease/revoke
      if (const auto lease = leases_.find(number("/ID")); lease != leases_.end()) lease->second.end = 0;
      end_leases();
      json.object([] {});
    }
    return {200, json.text()};
  }
  void write_range(Json& json, const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return;
    json.key("kvs").array([&] {
      json.object([&] {
        json.member("key", key);
        json.member("mod_revision", std::to_string(found->second.revision));
        json.member("value", found->second.text);
        if (found->second.lease != 0) json.member("lease", std::to_string(found->second.lease));
      });
    });
  }
  void end_leases() {
    std::erase_if(values_, [this](const auto& entry) { return entry.second.lease != 0 && leases_[entry.second.lease].end < kernel_.now(); });
    std::erase_if(leases_, [this](const auto& lease) { return lease.second.end < kernel_.now(); });
  }

  static inline SimulatedEtcd* running_ = nullptr;
  Kernel& kernel_;
  std::map<std::string, Value> values_;  // by the key as in the JSON
  std::map<std::int64_t, Lease> leases_;
  std::int64_t revision_ = 0, last_lease_ = 0;
};

}  // namespace simulate
