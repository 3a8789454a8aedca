// SPDX-License-Identifier: Apache-2.0
// The traffic that every transport must carry. The functions return "" or the fault; each is called once per rank.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <replicator/transport/transport.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../support/cases.hpp"

namespace replicator::test {

using namespace replicator::detail;

inline std::byte pattern(int from, int to, std::uint32_t slot, std::size_t i) {
  return static_cast<std::byte>((from * 31 + to * 17 + static_cast<int>(slot) * 7 + static_cast<int>(i % 251)) & 255);
}

inline transport::Clock::time_point soon() { return transport::Clock::now() + std::chrono::seconds{20}; }

template <transport::Transport T>
bool wait_all(T& endpoint, std::vector<transport::Ticket> tickets) {
  return endpoint.wait(
      [&] {
        std::erase_if(tickets, [&](transport::Ticket ticket) { return endpoint.done(ticket); });
        return tickets.empty();
      },
      soon());
}

// Every rank exchanges messages of `bytes` with every rank, also with itself: one for each slot in each direction. With
// `receives_first` it posts its receives before its sends, else after them. With `descending` the receives are posted from the last
// slot to the first and the sends from the first to the last, else the other way round.
template <transport::Transport T>
std::string all_pairs(T& endpoint, std::size_t bytes, bool receives_first, bool descending) {
  constexpr std::uint32_t slots = 3;
  const auto ranks = static_cast<std::size_t>(endpoint.size());
  const auto region_of = [&] { return endpoint.allocate(std::max<std::size_t>(1, bytes * slots * ranks)); };
  const auto out = region_of();
  const auto in = region_of();
  const auto part = [&](transport::Region region, std::size_t peer, std::uint32_t slot) {
    return std::span{region.data + (peer * slots + slot) * bytes, bytes};
  };
  std::vector<transport::Ticket> tickets;
  const auto post = [&](bool receives) {
    for (std::size_t peer = 0; peer < ranks; ++peer)
      for (std::uint32_t s = 0; s < slots; ++s) {
        const auto slot = descending == receives ? slots - 1 - s : s;
        const transport::Slot tag{5, slot, 9};
        const int who = static_cast<int>(peer);
        if (receives) {
          tickets.push_back(endpoint.recv(part(in, peer, slot), who, tag));
          continue;
        }
        const auto message = part(out, peer, slot);
        for (std::size_t i = 0; i < bytes; ++i) message[i] = pattern(endpoint.rank(), who, slot, i);
        tickets.push_back(endpoint.send(message, who, tag));
      }
  };
  post(receives_first);
  post(!receives_first);
  if (!wait_all(endpoint, tickets)) return "the messages did not come; ";
  for (std::size_t peer = 0; peer < ranks; ++peer)
    for (std::uint32_t slot = 0; slot < slots; ++slot)
      for (std::size_t i = 0; i < bytes; ++i)
        if (part(in, peer, slot)[i] != pattern(static_cast<int>(peer), endpoint.rank(), slot, i))
          return "wrong byte " + std::to_string(i) + " from rank " + std::to_string(peer) + "; ";
  return "";
}

// Messages with one slot match in the order of posting.
template <transport::Transport T>
std::string in_order(T& endpoint) {
  constexpr int count = 50;
  const int next = (endpoint.rank() + 1) % endpoint.size();
  const int previous = (endpoint.rank() + endpoint.size() - 1) % endpoint.size();
  std::vector<int> out(count);
  std::vector<int> in(count, -1);
  std::vector<transport::Ticket> tickets;
  for (int i = 0; i < count; ++i) out[static_cast<std::size_t>(i)] = endpoint.rank() * 1000 + i;
  const auto one = [](std::vector<int>& values, int i) { return std::span{&values[static_cast<std::size_t>(i)], 1}; };
  for (int i = 0; i < count; ++i) tickets.push_back(endpoint.send(std::as_bytes(one(out, i)), next, {1, 2, 3}));
  for (int i = 0; i < count; ++i)
    tickets.push_back(endpoint.recv(std::as_writable_bytes(one(in, i)), previous, {1, 2, 3}));
  if (!wait_all(endpoint, tickets)) return "the messages did not come; ";
  for (int i = 0; i < count; ++i)
    if (in[static_cast<std::size_t>(i)] != previous * 1000 + i)
      return "message " + std::to_string(i) + " out of order; ";
  return "";
}

template <transport::Transport T>
std::string all_traffic(T& endpoint) {
  std::string wrong;
  const auto large = std::size_t{few_cases() ? 1u << 18 : 1u << 20};  // more than a ring holds
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{4096}, large})
    for (const bool receives_first : {true, false})
      for (const bool descending : {true, false})
        if (bytes > 4096 && descending == receives_first)
          continue;  // the two that differ most are enough
        else if (const auto text = all_pairs(endpoint, bytes, receives_first, descending); !text.empty())
          wrong += std::to_string(bytes) + " bytes: " + text;
  return wrong + in_order(endpoint);
}

// One thread per endpoint; what they return, or threw, one after the other.
template <class T, class Body>
std::string on_threads(std::vector<std::unique_ptr<T>>& endpoints, Body body) {
  std::vector<std::string> texts(endpoints.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < endpoints.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        texts[i] = body(*endpoints[i]);
      } catch (const std::exception& error) {
        texts[i] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  std::string all;
  for (const auto& text : texts) all += text;
  return all;
}

}  // namespace replicator::test
