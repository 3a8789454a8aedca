// SPDX-License-Identifier: Apache-2.0
// HTTP by libcurl, for jobs that meet through an etcd. Including this header registers it.
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/job/etcd/etcd.hpp>
#include <string>

namespace replicator::detail::transport::detail {

// Certificates and proxies are found as libcurl finds them (the variables http_proxy, no_proxy, SSL_CERT_FILE ...).
inline HttpAnswer post_by_curl(const std::string& url, const std::string& body, std::chrono::milliseconds limit) {
  static const bool ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  const std::unique_ptr<CURL, decltype(&::curl_easy_cleanup)> request{ready ? ::curl_easy_init() : nullptr, &::curl_easy_cleanup};
  if (!request) throw CommunicationError{"libcurl cannot be started", -1};
  HttpAnswer result;
  char reason[CURL_ERROR_SIZE] = {};
  using Take = std::size_t (*)(const char*, std::size_t, std::size_t, HttpAnswer*);
  const Take take = [](const char* bytes, std::size_t, std::size_t count, HttpAnswer* to) -> std::size_t {
    constexpr std::size_t longest = 1 << 20;
    if (to->body.size() + count > longest) return 0;  // libcurl ends the transfer
    to->body.append(bytes, count);
    return count;
  };
  const std::unique_ptr<curl_slist, decltype(&::curl_slist_free_all)> headers{::curl_slist_append(nullptr, "Content-Type: application/json"), &::curl_slist_free_all};
  auto* const handle = request.get();
  ::curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, reason);
  ::curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  ::curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  ::curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  ::curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.c_str());
  ::curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(limit.count()));
  ::curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take);
  ::curl_easy_setopt(handle, CURLOPT_WRITEDATA, &result);
  const auto code = ::curl_easy_perform(handle);
  if (code != CURLE_OK) throw CommunicationError{url + ": " + (reason[0] != '\0' ? reason : ::curl_easy_strerror(code)), -1};
  long status = 0;
  ::curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  result.status = static_cast<int>(status);
  return result;
}

inline const bool curl_is_known = (http_post_slot.store(&post_by_curl), true);

}  // namespace replicator::detail::transport::detail
