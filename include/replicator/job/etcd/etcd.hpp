// SPDX-License-Identifier: Apache-2.0
// Etcd: keys, texts and leases in an etcd cluster, through its HTTP gateway (/v3, etcd 3.4 or later).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/core/printable.hpp>
#include <replicator/io/base64.hpp>
#include <replicator/io/json/json_leaves.hpp>
#include <replicator/io/json/json_writer.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

struct HttpAnswer {
  int status = 0;  // 200: good
  std::string body;
};
// Posts JSON to a URL and returns the answer. Throws CommunicationError where there is none within the limit. May be called by several
// threads at once.
using HttpPost = HttpAnswer (*)(const std::string& url, const std::string& body, std::chrono::milliseconds limit);

// job/etcd/curl.hpp fills this slot where it is part of the program.
inline constinit std::atomic<HttpPost> http_post_slot{nullptr};

// All functions throw CommunicationError where no member gives a good answer within 1.4 s. They may be called by several threads at once.
// Source: etcd's manual, "API reference" and "gRPC gateway".
class Etcd {
 public:
  using Clock = std::chrono::steady_clock;
  struct Held {
    std::string text;
    std::int64_t revision = 0;  // of the latest change
    std::int64_t lease = 0;     // 0: none
  };

  // `urls`: of the members of the cluster, separated by commas, such as "http://10.0.0.1:2379,http://10.0.0.2:2379". Throws BuildError
  // for anything else, and where the program has no HTTP.
  explicit Etcd(const std::string& urls) : urls_{urls}, post_{http_post_slot.load()} {
    for (std::string_view rest = urls; !rest.empty();) {
      auto url = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(url.size() + 1, rest.size()));
      while (url.ends_with('/')) url.remove_suffix(1);
      if (!is_url(url))
        throw BuildError{"--elastic-arbiter is \"" + urls + "\": each address of an etcd must be like http://10.0.0.1:2379, and several are separated by commas"};
      endpoints_.emplace_back(url);
    }
    if (post_ == nullptr)
      throw BuildError{"--elastic-arbiter is \"" + urls +
                       "\", an etcd, but the program was built without libcurl: install libcurl4-openssl-dev (Debian), include "
                       "<replicator/job/etcd/curl.hpp>, link replicator::curl and build again. Or give a folder that all hosts share"};
  }

  // Whether an --elastic-arbiter is an etcd, not a folder.
  static bool is_url(std::string_view text) { return text.starts_with("http://") || text.starts_with("https://"); }
  const std::string& urls() const { return urls_; }

  std::optional<Held> read(const std::string& key) const {
    JsonWriter json;
    json.object([&] { json.member("key", coded(key)); });
    return held(ask("kv/range", json.text()));
  }
  // Writes the text if the key has not changed since this revision; 0: if there is no such key. The key ends with the lease, if any.
  // Returns false where it has changed.
  bool write_unless_changed(const std::string& key, std::int64_t revision, const std::string& text, std::int64_t lease = 0) const {
    JsonWriter json;
    const auto list = [&](const char* name, const auto& body) {
      json.key(name).array([&] { json.object(body); });
    };
    json.object([&] {
      list("compare", [&] {
        json.member("key", coded(key));
        json.member("target", "MOD");
        json.member("mod_revision", std::to_string(revision));
      });
      list("success", [&] {
        json.key("requestPut").object([&] {
          json.member("key", coded(key));
          json.member("value", coded(text));
          if (lease != 0) json.member("lease", std::to_string(lease));
        });
      });
    });
    const auto answer = ask("kv/txn", json.text());
    const auto* succeeded = answer.find("/succeeded");
    return succeeded != nullptr && *succeeded == "true";
  }

  // A new lease: its keys end when nobody has kept it alive for `seconds`.
  std::int64_t grant(int seconds) const {
    JsonWriter json;
    json.object([&] { json.member("TTL", std::to_string(seconds)); });
    return number(ask("lease/grant", json.text()), "/ID");
  }
  // Returns false where the lease has ended.
  bool keep_alive(std::int64_t lease) const {
    const auto answer = ask("lease/keepalive", id(lease));
    const auto* seconds = answer.find("/TTL");
    return seconds != nullptr && whole_number<std::int64_t>(*seconds, 1).has_value();
  }
  void revoke(std::int64_t lease) const { ask("lease/revoke", id(lease)); }

 private:
  static constexpr std::chrono::milliseconds attempt{700}, longest{1400};  // of one member, of all
  static constexpr std::size_t longest_excerpt = 200;

  static std::string coded(const std::string& text) { return io::detail::to_base64(text); }
  static std::string id(std::int64_t lease) {
    JsonWriter json;
    json.object([&] { json.member("ID", std::to_string(lease)); });
    return json.text();
  }

  // Asks the members in turn, beginning with the one that answered last, until one answers.
  io::detail::JsonLeaves ask(const char* what, const std::string& body) const {
    const auto until = Clock::now() + longest;
    const auto first = first_.load(std::memory_order_relaxed);
    std::string reasons;
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
      if (left.count() <= 0) break;
      try {
        return ask_member(endpoints_[(first + i) % endpoints_.size()] + "/v3/" + what, body, std::min(left, attempt));
      } catch (const Error& error) {
        reasons += (reasons.empty() ? "" : "; ") + std::string{error.what()};
        first_.store((first + i + 1) % endpoints_.size(), std::memory_order_relaxed);
      }
    }
    throw CommunicationError{"the etcd of --elastic-arbiter gives no answer (does it run, and is its address right?): " + reasons, -1};
  }
  io::detail::JsonLeaves ask_member(const std::string& url, const std::string& body, std::chrono::milliseconds limit) const {
    const auto answer = post_(url, body, limit);
    if (answer.status == 200) return {answer.body, url};
    throw CommunicationError{url + " says " + std::to_string(answer.status) + ": " + printable(answer.body, longest_excerpt), -1};
  }

  std::optional<Held> held(const io::detail::JsonLeaves& answer) const {
    const auto* key = answer.find("/kvs/0/key");
    if (key == nullptr) return {};
    const auto* value = answer.find("/kvs/0/value");  // absent where it is empty
    const auto text = io::detail::from_base64(value == nullptr ? "" : *value);
    if (!text) throw CommunicationError{"the etcd of --elastic-arbiter gave a value that is no base64", -1};
    return Held{*text, number(answer, "/kvs/0/mod_revision"), answer.find("/kvs/0/lease") == nullptr ? 0 : number(answer, "/kvs/0/lease")};
  }
  static std::int64_t number(const io::detail::JsonLeaves& answer, const char* path) {
    const auto* text = answer.find(path);
    if (text != nullptr)
      if (const auto value = whole_number<std::int64_t>(*text)) return *value;
    throw CommunicationError{std::string{"the etcd of --elastic-arbiter gave an answer without the number "} + path, -1};
  }

  std::string urls_;
  HttpPost post_;
  std::vector<std::string> endpoints_;
  mutable std::atomic<std::size_t> first_{0};  // the member that is asked first
};

}  // namespace replicator::detail::transport::detail
