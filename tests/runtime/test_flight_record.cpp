// SPDX-License-Identifier: Apache-2.0
// A device's flight record: its last collectives in order, for any reader at any time.
#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include <replicator/runtime/flight_record.hpp>

namespace test_flight_record {

using replicator::detail::FlightRecord;

TEST_CASE("a flight record keeps the last 64 collectives in order") {
  FlightRecord record;
  CHECK(record.last().empty());
  CHECK(record.position().compiled == FlightRecord::nothing);
  for (std::uint64_t step = 0; step < 50; ++step) {
    record.begin(3, step, 1000);
    record.started(0);
    record.started(1);
    record.finished(1);
    if (step < 49) record.finished(0);
  }
  const auto last = record.last();
  REQUIRE(last.size() == FlightRecord::capacity);
  for (std::size_t i = 0; i < last.size(); ++i) {
    CHECK(last[i].number == 36 + i);
    CHECK(last[i].step == last[i].number / 2);
    CHECK(last[i].collective == last[i].number % 2);
    CHECK(last[i].compiled == 3);
    CHECK(last[i].finished == (last[i].number != 98));
  }
}

TEST_CASE("a flight record says where the device is, and for whom it waits until it waits no more") {
  FlightRecord record;
  record.begin(2, 7, 1000);
  record.at(5);
  record.waits(1500);
  record.misses(4, 24);
  auto at = record.position();
  CHECK(at.compiled == 2);
  CHECK(at.step == 7);
  CHECK(at.began == 1000);
  CHECK(at.instruction == 5);
  CHECK(at.waits_since == 1500);
  CHECK(at.missing == 4);
  CHECK(at.moved_bytes == 24);
  record.waits_no_more();
  record.end();
  at = record.position();
  CHECK(at.waits_since == 0);
  CHECK(at.missing == -1);
  CHECK(at.instruction == FlightRecord::nothing);
}

TEST_CASE("who reads a flight record beside its writer sees whole entries in order") {
  FlightRecord record;
  std::atomic<bool> stop{false};
  std::thread writer{[&] {
    for (std::uint32_t i = 0; !stop; ++i) {
      record.begin(i, i, i);
      record.started(i);
    }
  }};
  std::size_t seen = 0, wrong = 0;
  for (int look = 0; look < 3000 || seen == 0; ++look) {
    std::uint64_t before = 0;
    for (const auto& entry : record.last()) {
      wrong += entry.step != entry.number || entry.compiled != static_cast<std::uint32_t>(entry.number) ||
               entry.collective != entry.compiled || (before && entry.number <= before);
      before = entry.number;
      ++seen;
    }
  }
  stop = true;
  writer.join();
  CHECK(wrong == 0);
}

}  // namespace test_flight_record
