// SPDX-License-Identifier: Apache-2.0
// The checks of replicator-preflight: the processes of a job measure and compare each other before it starts.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <replicator/collectives/connect/measure_topology.hpp>
#include <replicator/engine/program_identity.hpp>
#include <replicator/engine/topology_file.hpp>
#include <replicator/io/json/json_writer.hpp>
#include <replicator/job/clock_offset.hpp>
#include <replicator/job/host_identity.hpp>
#include <replicator/job/job.hpp>
#include <replicator/job/job_inline.hpp>

namespace replicator::tools {

using namespace replicator::detail;

struct PreflightOptions {
  std::string transport = "auto";
  std::string program = "/proc/self/exe";  // file to compare between hosts
  int devices = 1;                         // per process
  collectives::MeasureOptions measure = {};
};

// The result, the same on every process.
struct Preflight {
  struct Process {
    std::string name;  // "process 2 (pid 4711 on host-a)"
    int host = 0;      // number of its machine, in the order of the processes
    std::string program;
    std::string instructions;
    double seconds_ahead = 0;  // its wall clock, relative to that of process 0
    double uncertainty = 0;    // of seconds_ahead, in seconds
  };
  std::vector<Process> processes;
  collectives::MeasuredJob measured;
  int devices = 1;
};

namespace detail {

inline std::vector<std::string> exchange_texts(transport::Job& job, const std::string& mine, const char* what) {
  std::vector<std::string> all;
  for (const auto& bytes : job.exchange(std::as_bytes(std::span{mine.data(), mine.size()}), what))
    all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all;
}

// The wall clock minus the steady clock, in nanoseconds. measure_clock_offset compares the steady clocks.
inline std::int64_t day_ahead_of_steady() {
  const auto nanoseconds = [](auto time) { return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count(); };
  return nanoseconds(std::chrono::system_clock::now()) - nanoseconds(std::chrono::steady_clock::now());
}

inline void add_clocks(transport::Job& job, Preflight& result) {
  const auto offset = transport::measure_clock_offset(job);
  const std::array<std::int64_t, 3> mine{day_ahead_of_steady(), offset.offset, offset.uncertainty};
  const auto all = job.exchange(std::as_bytes(std::span{mine}), "the comparison of clocks of the day");
  std::int64_t first = 0;
  for (std::size_t p = 0; p < all.size(); ++p) {
    std::array<std::int64_t, 3> theirs{};
    if (all[p].size() == sizeof theirs) std::memcpy(theirs.data(), all[p].data(), sizeof theirs);
    if (p == 0) first = theirs[0];
    result.processes[p].seconds_ahead = static_cast<double>(theirs[0] - theirs[1] - first) * 1e-9;
    result.processes[p].uncertainty = static_cast<double>(theirs[2]) * 1e-9;
  }
}

inline std::string number_text(double value, const char* format) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace detail

// Collective. Every wait has a deadline, from the job or the options.
// Throws CommunicationError that names an unreachable process, and DataError for a program that cannot be read.
inline Preflight look_around(transport::Job& job, const PreflightOptions& options) {
  Preflight result;
  result.devices = options.devices;
  const auto programs = detail::exchange_texts(job, file_digest(options.program).text(), "the comparison of programs");
  const auto instructions = detail::exchange_texts(job, instruction_set(), "the comparison of instruction sets");
  job.barrier("a preflight with " + std::to_string(options.devices) + " device(s) of each process over " + options.transport);
  const auto hosts = transport::host_of_processes(job);
  for (int p = 0; p < job.size(); ++p) {
    const auto index = static_cast<std::size_t>(p);
    result.processes.push_back({job.describe(p), hosts[index], programs[index], instructions[index]});
  }
  detail::add_clocks(job, result);
  result.measured = collectives::measure_job(job, options.transport, options.devices, options.measure);
  return result;
}

namespace detail {

// The bandwidth that a quarter of the links reach, and the latency that a quarter do not exceed; links inside machines,
// or between them. A median would not do: if one of three hosts is slow, two thirds of the links are.
inline collectives::Link good_link(const Preflight& found, bool inside) {
  std::vector<double> latencies, bandwidths;
  for (std::size_t p = 0; p < found.processes.size(); ++p)
    for (std::size_t q = p + 1; q < found.processes.size(); ++q) {
      if ((found.processes[p].host == found.processes[q].host) != inside) continue;
      latencies.push_back(found.measured.between[p][q].microseconds);
      bandwidths.push_back(found.measured.between[p][q].bytes_per_microsecond);
    }
  if (latencies.empty()) return {};
  const auto quarter = latencies.size() / 4;
  std::sort(latencies.begin(), latencies.end());
  std::sort(bandwidths.rbegin(), bandwidths.rend());
  return {latencies[quarter], bandwidths[quarter]};
}

inline std::string text_of(const collectives::Link& link) {
  return number_text(link.bytes_per_microsecond, "%.4g MB/s, ") + number_text(link.microseconds, "%.4g us");
}

inline void add_slow_links(const Preflight& found, std::vector<std::string>& problems) {
  const auto& processes = found.processes;
  constexpr double waking = 100;  // us that a process may wait for a busy processor
  const collectives::Link good[] = {good_link(found, false), good_link(found, true)};
  for (std::size_t p = 0; p < processes.size(); ++p)
    for (std::size_t q = p + 1; q < processes.size(); ++q) {
      const auto& link = found.measured.between[p][q];
      const auto& usual = good[processes[p].host == processes[q].host];
      if (link.bytes_per_microsecond >= usual.bytes_per_microsecond / 2 && link.microseconds <= usual.microseconds * 4 + waking) continue;
      problems.push_back("the link between " + processes[p].name + " and " + processes[q].name + " is slow: " + text_of(link) +
                         "; a quarter of its kind has " + text_of(usual) + " or better");
    }
}

}  // namespace detail

// The problems, as sentences that name the process; empty if all is well. A link is compared with the best quarter of
// its kind. It is slow below half of their bandwidth, or above four times their latency plus 100 us. A clock is wrong
// if it is more than a second away.
inline std::vector<std::string> problems_of(const Preflight& found) {
  std::vector<std::string> problems;
  const auto& processes = found.processes;
  for (const auto& process : processes) {
    if (process.program != processes[0].program)
      problems.push_back(process.name + " has another program than " + processes[0].name + " (" + process.program + ", not " +
                         processes[0].program + "): copy the same file to every host");
    if (process.instructions != processes[0].instructions)
      problems.push_back(process.name + " computes by other instructions than " + processes[0].name + " (" + process.instructions + ", not " +
                         processes[0].instructions + "), which changes bits: use processors of one kind");
    if (std::abs(process.seconds_ahead) > 1 + process.uncertainty)
      problems.push_back("the clock of " + process.name + " is " + detail::number_text(process.seconds_ahead, "%+.3f") + " s from that of " +
                         processes[0].name + ": set them by NTP");
  }
  detail::add_slow_links(found, problems);
  return problems;
}

// A table for people.
inline std::string table_of(const Preflight& found) {
  std::string text;
  for (std::size_t p = 0; p < found.processes.size(); ++p) {
    const auto& process = found.processes[p];
    text += process.name + ": program " + process.program.substr(0, 12) + ", " + process.instructions + ", clock " +
            detail::number_text(process.seconds_ahead * 1e3, "%+.3f") + detail::number_text(process.uncertainty * 1e3, " +- %.3f ms") + ", sums " +
            detail::number_text(found.measured.reduced[p], "%.4g MB/s");
    if (!found.measured.inside.empty())
      text += ", between its devices " + detail::number_text(found.measured.inside[p].bytes_per_microsecond, "%.4g MB/s ") +
              detail::number_text(found.measured.inside[p].microseconds, "%.4g us");
    text += "\n";
  }
  if (found.processes.size() < 2) return text;
  text += "MB/s, and us of latency, between processes:\n";
  for (std::size_t p = 0; p < found.processes.size(); ++p) {
    text += detail::number_text(static_cast<double>(p), "%6.0f:");
    for (std::size_t q = 0; q < p; ++q)
      text += detail::number_text(found.measured.between[p][q].bytes_per_microsecond, " %9.4g") +
              detail::number_text(found.measured.between[p][q].microseconds, " (%.4g)");
    text += "\n";
  }
  return text;
}

// JSON for programs: {"processes": [...], "links": [...], "problems": [...]}.
inline std::string json_of(const Preflight& found) {
  JsonWriter json;
  const auto link_members = [&](const collectives::Link& link) {
    json.member("microseconds", link.microseconds);
    json.member("bytes_per_microsecond", link.bytes_per_microsecond);
  };
  json.object([&] {
    json.member("format", "replicator preflight 1");
    json.key("processes").array([&] {
      for (std::size_t p = 0; p < found.processes.size(); ++p) {
        const auto& process = found.processes[p];
        json.new_line();
        json.object([&] {
          json.member("name", process.name);
          json.member("program", process.program);
          json.member("instruction_set", process.instructions);
          json.member("seconds_ahead", process.seconds_ahead);
          json.member("uncertainty", process.uncertainty);
          json.member("reduced_bytes_per_microsecond", found.measured.reduced[p]);
          if (!found.measured.inside.empty()) json.key("devices").object([&] { link_members(found.measured.inside[p]); });
        });
      }
    });
    json.new_line();
    json.key("links").array([&] {
      for (std::size_t p = 0; p < found.processes.size(); ++p)
        for (std::size_t q = p + 1; q < found.processes.size(); ++q) {
          json.new_line();
          json.object([&] {
            json.member("between", p);
            json.member("and", q);
            link_members(found.measured.between[p][q]);
          });
        }
    });
    json.new_line();
    json.values("problems", problems_of(found));
  });
  return json.text() + "\n";
}

}  // namespace replicator::tools
