// SPDX-License-Identifier: Apache-2.0
// How long a step would take on other hosts: simulates what --plan wrote. See docs/simulate.md.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <replicator/core/json.hpp>

#include "simulated_step.hpp"

namespace rp = replicator;
namespace rc = replicator::collectives;

namespace {

constexpr int timeline_hosts = 4;

struct Options {
  std::string plan, trace, link, host_link = "20GB/s,1us", reduce = "10GB/s", jitter = "0%", step_time, schedule = "auto", timeline;
  int hosts = 1, devices_per_host = 1, steps = 1;
  std::uint64_t seed = 0;
  bool kernels_aside = false;
};

// "12.5GB/s" with a table of units; throws BuildError with an example.
double quantity(const std::string& flag, std::string_view text, const std::vector<std::pair<std::string_view, double>>& units, const char* example) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit{end, static_cast<std::size_t>(text.data() + text.size() - end)};
  if (error == std::errc{} && value >= 0)
    for (const auto& [name, factor] : units)
      if (unit == name) return value * factor;
  throw rp::BuildError{flag + " has \"" + std::string{text} + "\": say " + example};
}
double bandwidth(const std::string& flag, std::string_view text) {
  const double result = quantity(flag, text, {{"GB/s", 1e3}, {"MB/s", 1}, {"Gbit/s", 125}, {"Mbit/s", 0.125}}, "12.5GB/s, 100MB/s or 10Gbit/s");
  if (result == 0) throw rp::BuildError{flag + " has \"" + std::string{text} + "\": a bandwidth is more than 0"};
  return result;
}
double duration(const std::string& flag, std::string_view text) {
  return quantity(flag, text, {{"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"ns", 1e-3}}, "2us, 0.5ms or 1s");
}
rc::Link link_of(const std::string& flag, const std::string& text) {
  const auto comma = text.find(',');
  if (comma == std::string::npos) throw rp::BuildError{flag + " is \"" + text + "\": say bandwidth and latency, 12.5GB/s,2us"};
  return {duration(flag, std::string_view{text}.substr(comma + 1)), bandwidth(flag, std::string_view{text}.substr(0, comma))};
}

nlohmann::json read(const std::string& flag, const std::string& path) {
  if (path.empty()) return nullptr;
  std::ifstream file{path};
  if (!file) throw rp::DataError{flag + ": \"" + path + "\" cannot be read: name what a run wrote with " + flag};
  auto content = nlohmann::json::parse(file, nullptr, false);
  if (content.is_discarded()) throw rp::DataError{flag + ": \"" + path + "\" is no JSON: name what a run wrote with " + flag};
  return content;
}
// What f reads in the file, or an error that names it.
template <class F>
auto about(const std::string& flag, const std::string& path, F f) {
  try {
    return f();
  } catch (const rp::DataError& error) {
    throw rp::DataError{"\"" + path + "\": " + error.what()};
  } catch (const nlohmann::json::exception& error) {
    const std::string text = error.what();  // "[json.exception.out_of_range.403] key 'traceEvents' not found"
    throw rp::DataError{"\"" + path + "\" is not what " + flag + " of this version writes: " + text.substr(text.find(' ') + 1)};
  }
}

void add_flags(CLI::App& app, Options& o) {
  app.add_option("plan", o.plan, "What a run wrote with --plan FILE")->required();
  app.add_option("--trace", o.trace, "What the same run wrote with --trace FILE: the times of its kernels");
  app.add_option("--step-time", o.step_time,
                 "What a device computes in a step, all together (110ms): measured times are stretched to it; without --trace it is dealt "
                 "to kernels by the bytes they touch");
  app.add_option("--hosts", o.hosts, "Hosts")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--devices-per-host", o.devices_per_host, "Devices of each; all do what the plan's first device does, with as many replicas")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--link", o.link, "What a host has to the others, each way, shared by its devices: 12.5GB/s,2us")->required();
  app.add_option("--host-link", o.host_link, "What a device has to the others of its host")->capture_default_str();
  app.add_option("--reduce", o.reduce, "How fast a device reduces")->capture_default_str();
  app.add_option("--schedule", o.schedule,
                 "For every all-reduce: auto, owner_computes, direct, hierarchical, naive, ...; ring where the plan allows any order")
      ->capture_default_str();
  app.add_option("--jitter", o.jitter, "Deviation of every time from its mean")->capture_default_str();
  app.add_option("--steps", o.steps, "How many steps to draw; the median is told")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--seed", o.seed, "Of the jitter")->capture_default_str();
  app.add_flag("--kernels-aside", o.kernels_aside, "Kernels run beside communication, as on GPUs; else it moves on between kernels");
  app.add_option("--timeline", o.timeline, "Writes what happens on the first 4 hosts in the first step, for ui.perfetto.dev");
}

std::string text_of(double microseconds) {
  char text[32];
  std::snprintf(text, sizeof text, microseconds < 1000 ? "%.1f us" : "%.3f ms", microseconds < 1000 ? microseconds : microseconds / 1000);
  return text;
}
std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * part);
  return text;
}

std::string name_of(const rc::SimulatedSpan& span, const rp::tools::DeviceStep& step) {
  if (span.kind == rc::SimulatedSpan::Kind::compute) return "kernels";
  const auto& text = step.collectives[static_cast<std::size_t>(span.collective)].text;
  return (span.kind == rc::SimulatedSpan::Kind::reduce ? "reductions of " : "messages of ") + text;
}

// Says on stderr how long it will take, every few seconds.
class Progress {
 public:
  Progress(int steps, int devices) : steps_{steps}, devices_{devices} {}
  void done(int steps) {
    const auto now = Clock::now();
    if (steps == steps_ || now - told_ < std::chrono::seconds{5}) return;
    told_ = now;
    const double each = std::chrono::duration<double>(now - begin_).count() / steps;
    std::fprintf(stderr, "replicator-simulate: %d of %d steps of %d devices, about %.0f s left\n", steps, steps_, devices_, each * (steps_ - steps));
  }

 private:
  using Clock = std::chrono::steady_clock;
  int steps_, devices_;
  Clock::time_point begin_ = Clock::now(), told_ = begin_;
};

// Where the time went, the largest first.
void tell_critical_path(const rc::Simulation& simulation, const rp::tools::DeviceStep& step) {
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& span : simulation.critical_path) {
    const std::string name = name_of(span, step);
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.second == name; });
    if (found == parts.end()) parts.push_back({span.end - span.begin, name});
    else found->first += span.end - span.begin;
  }
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::cout << "critical path:\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(parts.size(), 8); ++i)
    std::cout << "  " << percent(parts[i].first / simulation.time()) << "  " << text_of(parts[i].first) << "  " << parts[i].second << '\n';
}

void tell_busiest_links(const rc::Simulation& simulation) {
  for (const int dimension : {0, 1}) {
    const rc::LinkUse* most = nullptr;
    for (const auto& link : simulation.links)
      if (link.dimension == dimension && (!most || link.busy > most->busy)) most = &link;
    if (most && most->busy > 0)
      std::cout << "busiest link of a " << (dimension == 0 ? "device" : "host") << ": " << most->bytes << " B, "
                << percent(most->busy / simulation.time()) << " of the step\n";
  }
}

// Of the first hosts: more would be too much to look at.
void write_timeline(const std::string& path, const rc::Simulation& simulation, const rp::tools::DeviceStep& step, int devices_per_host) {
  rp::JsonWriter json;
  std::size_t id = 0;
  const auto add = [&](const rc::SimulatedSpan& span, const char* phase, double time) {
    json.new_line();
    json.object([&] {
      json.member("ph", phase);
      json.member("pid", span.rank / devices_per_host);
      json.member("tid", span.rank % devices_per_host);
      json.member("name", name_of(span, step));
      json.member("cat", "simulated");
      json.member("ts", time);
      if (*phase == 'X') json.member("dur", span.end - span.begin);
      else json.member("id", id);
      if (span.peer >= 0) json.key("args").object([&] { json.member("to", span.peer); });
    });
  };
  json.object([&] {
    json.key("traceEvents").array([&] {
      for (const auto& span : simulation.spans) {
        if (span.rank / devices_per_host >= timeline_hosts) continue;
        if (span.peer < 0) {
          add(span, "X", span.begin);
        } else {  // messages of a device overlap
          ++id;
          add(span, "b", span.begin);
          add(span, "e", span.end);
        }
      }
    });
  });
  std::ofstream file{path};
  file << json.text() << '\n';
  if (!file.flush()) throw rp::DataError{"\"" + path + "\" cannot be written"};
}

void run(const Options& o) {
  const rc::Topology topology{{{o.devices_per_host, link_of("--host-link", o.host_link)}, {o.hosts, link_of("--link", o.link)}},
                              bandwidth("--reduce", o.reduce)};
  const double jitter = quantity("--jitter", o.jitter, {{"%", 0.01}}, "5%");
  topology.require();
  const double step_time = o.step_time.empty() ? 0 : duration("--step-time", o.step_time);
  const auto schedule = rc::parse_all_reduce(o.schedule, {o.devices_per_host, o.hosts});
  const auto plan = read("--plan", o.plan), trace = read("--trace", o.trace);
  about("--plan", o.plan, [&] { return rp::tools::read_step(plan, nullptr, 1); });  // what fails from here on is the trace's
  if (o.trace.empty() && o.step_time.empty())
    throw rp::BuildError{"nothing says how long kernels take: give --trace FILE of the run that wrote the plan, or --step-time 110ms"};
  const auto step = about("--trace", o.trace, [&] { return rp::tools::read_step(plan, trace, step_time); });
  const rp::tools::ChosenCollectives chosen{step, topology.ranks(), schedule};
  Progress progress{o.steps, topology.ranks()};
  std::vector<double> times;
  for (int n = 0; n < o.steps; ++n) {
    const bool first = n == 0;
    const rc::SimulationOptions options{jitter, o.seed + static_cast<std::uint64_t>(n), o.kernels_aside, first && !o.timeline.empty(), first};
    const auto simulation = rc::simulate(chosen.uses, {step.actions}, topology, options);
    times.push_back(simulation.time());
    progress.done(n + 1);
    if (!first) continue;
    std::cout << step.replicas * topology.ranks() << " replicas on " << o.hosts << " host(s) x " << o.devices_per_host << " device(s)\n";
    for (std::size_t c = 0; c < chosen.uses.size(); ++c)
      std::cout << step.collectives[c].text << ": " << chosen.bytes_of[c] << " B by " << chosen.uses[c].schedule->name << " in "
                << chosen.uses[c].pieces << " piece(s)\n";
    tell_critical_path(simulation, step);
    tell_busiest_links(simulation);
    std::cout.flush();
    if (!o.timeline.empty()) write_timeline(o.timeline, simulation, step, o.devices_per_host);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::cout << "one device alone: " << text_of(step.microseconds) << "\nstep: " << text_of(median);
  if (o.steps > 1) std::cout << " (median of " << o.steps << "; " << text_of(times.front()) << " to " << text_of(times.back()) << ")";
  std::cout << "\nefficiency: " << percent(step.microseconds / median) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Simulates a step on other hosts, in virtual time: the kernels and collectives that a plan holds, with schedules chosen anew. "
      "Efficiency is the time that a device computes against the time of the step.",
      "replicator-simulate"};
  app.footer(
      "Example:\n"
      "  train --devices cpu:0 --plan plan.json --trace trace.json\n"
      "  replicator-simulate plan.json --trace trace.json --hosts 64 --devices-per-host 4 --link 12.5GB/s,2us --jitter 5% --steps 20\n"
      "Exit code: 0; 1 where a file cannot be used; 2 for flags that cannot be.");
  add_flags(app, options);
  try {
    app.parse(argc, argv);
    run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const rp::BuildError& error) {
    std::cerr << "replicator-simulate: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "replicator-simulate: " << error.what() << '\n';
    return 1;
  }
}
