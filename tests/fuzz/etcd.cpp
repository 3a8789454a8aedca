// SPDX-License-Identifier: Apache-2.0
// Fuzzes what an etcd answers: its JSON, the address of a job, and the claim of an epoch. The first byte chooses the question.
// covers: job/etcd/etcd.hpp job/etcd/directory.hpp job/elastic/claim_text.hpp io/json/json_leaves.hpp io/base64.hpp
#include <replicator/io/base64.hpp>
#include <replicator/job/elastic/claim_text.hpp>
#include <replicator/job/etcd/directory.hpp>
#include <replicator/job/etcd/etcd.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;
using namespace replicator::detail::transport;

namespace {

std::string body;
transport::detail::HttpAnswer answer(const std::string&, const std::string&, std::chrono::milliseconds) { return {200, body}; }

}  // namespace

void one(Bytes input) {
  std::string text{text_of(input)};
  const char question = text.empty() ? '\0' : text[0];
  body = text.substr(std::min<std::size_t>(text.size(), 1));
  transport::detail::http_post_slot.store(&answer);
  documented<CommunicationError>("", [&] {
    const transport::detail::Etcd etcd{"http://a:1"};
    if (question == 'r') etcd.read("key");
    else if (question == 'w') etcd.write_unless_changed("key", 7, "text");
    else if (question == 'g') require(etcd.grant(10) >= 0, "a lease that cannot be");
    else if (question == 'k') etcd.keep_alive(7);
    else if (question == 'c') require(transport::detail::claim_text(transport::detail::read_claim(body, 2, "a key")).starts_with("epoch 2"), "another epoch");
    else if (question == '6') require(io::detail::from_base64(io::detail::to_base64(body)) == body, "other bytes");
    else {
      const auto entry = Directory::read(body);
      require(Directory::read(Directory::write(entry)) == entry, "another entry");
    }
  });
}

std::vector<std::string> seeds() {
  const std::string header = R"({"header":{"cluster_id":"1","member_id":"2","revision":"3","raft_term":"4"})";
  return {"r" + header + R"(,"kvs":[{"key":"a2V5","create_revision":"2","mod_revision":"3","version":"1","value":"aGk=","lease":"77"}],"count":"1"})", "w" + header + R"(,"succeeded":true,"responses":[{"response_put":{}}]})",
          "g" + header + R"(,"ID":"77","TTL":"10"})",
          "k"
          R"({"result":{"ID":"77","TTL":"10"}})",
          "cepoch 2 of an elastic job\ntaken by process 0 (pid 1 on a)\nlives of its processes: 0 0 -\n",
          "dgathering 0 29500 10.0.0.1,fd00::1", "djob-5f3a 3 41233 10.0.0.2", "6bytes"};
}

}  // namespace replicator::fuzz
