// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a step on other hosts: simulates the plan that --plan wrote. See docs/simulate.md.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <replicator/collectives/parse_link.hpp>
#include <replicator/io/file.hpp>
#include <replicator/io/json/json_writer.hpp>
#include <replicator/io/read_text.hpp>

#include "simulated_step.hpp"
#include "traced_run.hpp"

namespace rp = replicator;
namespace rc = replicator::detail::collectives;

namespace {

constexpr int timeline_hosts = 4;
constexpr int most_on_a_path = 2048;  // most devices for which the critical path is kept: it needs much memory

struct Options {
  std::string plan, trace, link, host_link = "20GB/s,1us", reduce = "10GB/s", jitter = "0%", device_jitter = "0%", step_time, schedule = "auto", timeline;
  int hosts = 1, devices_per_host = 1, steps = 1;
  std::uint64_t seed = 0;
  bool kernels_aside = false, no_overlap = false, as_run = false;
};

nlohmann::json read(const std::string& flag, const std::string& path) {
  if (path.empty()) return nullptr;
  const auto text = rp::detail::read_text(path);
  if (!text) throw rp::DataError{flag + ": \"" + path + "\" cannot be read (" + std::strerror(errno) + "): name what a run wrote with " + flag};
  auto content = nlohmann::json::parse(*text, nullptr, false);
  if (content.is_discarded()) throw rp::DataError{flag + ": \"" + path + "\" is no JSON: name what a run wrote with " + flag};
  return content;
}
// Returns f(). Its errors name the file.
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
  app.add_option("plan", o.plan, "File that a run wrote with --plan FILE")->required();
  app.add_option("--trace", o.trace, "File that the same run wrote with --trace FILE: the times of its kernels");
  app.add_option("--step-time", o.step_time,
                 "Time of all kernels of a device in a step (110ms). Measured times are scaled to it; without --trace it is distributed "
                 "over the kernels by the bytes they touch");
  app.add_option("--hosts", o.hosts, "Hosts")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--devices-per-host", o.devices_per_host, "Devices of each host; all do the work of the plan's first device, with as many replicas")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--link", o.link, "Link of a host to the others, each way, shared by its devices: 12.5GB/s,2us")->required();
  app.add_option("--host-link", o.host_link, "Link of a device to the others of its host")->capture_default_str();
  app.add_option("--reduce", o.reduce, "Speed of a device's reductions")->capture_default_str();
  app.add_option("--schedule", o.schedule,
                 "For every all-reduce: auto, owner_computes, direct, hierarchical, naive, ...; ring where the plan allows any order")
      ->capture_default_str();
  app.add_option("--jitter", o.jitter, "Deviation of every time from its mean: 5%, or measured: that of the kernels in the trace")->capture_default_str();
  app.add_option("--device-jitter", o.device_jitter, "Deviation of the sum of a device's kernels in a step: 2%, or measured")->capture_default_str();
  app.add_option("--steps", o.steps, "Number of steps to draw; prints the median")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--seed", o.seed, "Seed of the jitter")->capture_default_str();
  app.add_flag("--kernels-aside", o.kernels_aside, "Kernels run beside communication, as on GPUs; without this flag it advances only between kernels");
  app.add_flag("--no-overlap", o.no_overlap, "Collectives begin only when kernels need one of them, and the kernels wait for all of them");
  app.add_flag("--as-run", o.as_run,
               "Simulates the very steps of the trace, with the same hosts and devices and each device's own times in each step, and "
               "compares them with the measured times")
      ->excludes("--hosts")
      ->excludes("--devices-per-host")
      ->excludes("--step-time")
      ->excludes("--jitter")
      ->excludes("--device-jitter")
      ->excludes("--steps");
  app.add_option("--timeline", o.timeline, "File for a timeline of the first step on the first 4 hosts, for ui.perfetto.dev");
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

std::string signed_percent(double part) { return (part < 0 ? "" : "+") + percent(part); }

std::string name_of(const rc::SimulatedSpan& span, const std::vector<rp::tools::DeviceStep::Use>& uses) {
  if (span.kind == rc::SimulatedSpan::Kind::compute) return "kernels";
  const auto& text = uses[static_cast<std::size_t>(span.collective)].text;
  return (span.kind == rc::SimulatedSpan::Kind::reduce ? "reductions of " : "messages of ") + text;
}

// Reports progress and the time left on stderr, every few seconds.
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

// Prints the shares of the critical path, the largest first.
void tell_critical_path(const rc::Simulation& simulation, const std::vector<rp::tools::DeviceStep::Use>& uses) {
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& span : simulation.critical_path) {
    const std::string name = name_of(span, uses);
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

// Writes the first hosts only: more would be too many to look at.
void write_timeline(const std::string& path, const rc::Simulation& simulation, const std::vector<rp::tools::DeviceStep::Use>& uses, int devices_per_host) {
  rp::detail::JsonWriter json;
  std::size_t id = 0;
  const auto add = [&](const rc::SimulatedSpan& span, const char* phase, double time) {
    json.new_line();
    json.object([&] {
      json.member("ph", phase);
      json.member("pid", span.rank / devices_per_host);
      json.member("tid", span.rank % devices_per_host);
      json.member("name", name_of(span, uses));
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
  const auto text = json.text() + "\n";
  rp::io::FileReplacement file{path};
  file.write(std::as_bytes(std::span{text}));
  file.commit();
}

rc::Topology topology_of(const Options& o, int devices_per_host, int hosts) {
  rc::Topology topology{{{devices_per_host, rc::parse_link("--host-link", o.host_link)}, {hosts, rc::parse_link("--link", o.link)}},
                        rc::parse_bandwidth("--reduce", o.reduce)};
  topology.require();
  return topology;
}
double jitter_of(const std::string& flag, const std::string& text, double measured) {
  return text == "measured" ? measured : rc::parse_quantity(flag, text, {{"%", 0.01}}, "5%, or measured");
}

void tell_collectives(const rp::tools::ChosenCollectives& chosen, const std::vector<rp::tools::DeviceStep::Use>& uses) {
  for (std::size_t c = 0; c < chosen.uses.size(); ++c)
    std::cout << uses[c].text << ": " << chosen.bytes_of[c] << " B by " << chosen.uses[c].schedule->name << " in " << chosen.uses[c].pieces
              << " piece(s)\n";
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Simulates steps on other hosts.
void run(const Options& o) {
  const auto topology = topology_of(o, o.devices_per_host, o.hosts);
  const double step_time = o.step_time.empty() ? 0 : rc::parse_duration("--step-time", o.step_time);
  const auto schedule = rc::parse_all_reduce(o.schedule, {o.devices_per_host, o.hosts});
  jitter_of("--jitter", o.jitter, 0);
  jitter_of("--device-jitter", o.device_jitter, 0);
  const auto plan = read("--plan", o.plan), trace = read("--trace", o.trace);
  about("--plan", o.plan, [&] { return rp::tools::read_step(plan, nullptr, 1); });  // so that later errors are about the trace
  if (o.trace.empty() && o.step_time.empty())
    throw rp::BuildError{"nothing says how long kernels take: give --trace FILE of the run that wrote the plan, or --step-time 110ms"};
  auto step = about("--trace", o.trace, [&] { return rp::tools::read_step(plan, trace, step_time); });
  rp::detail::MeasuredJitter measured;
  if (o.jitter == "measured" || o.device_jitter == "measured") {
    if (o.trace.empty()) throw rp::BuildError{"--jitter measured needs --trace FILE with several steps"};
    measured = about("--trace", o.trace, [&] { return rp::tools::jitter_of(rp::tools::read_run(plan, trace)); });
    std::cout << "measured jitter: " << percent(measured.kernel) << " of a kernel, " << percent(measured.device) << " of all kernels of a step\n";
  }
  if (o.no_overlap) step.actions = rp::tools::without_overlap(step.actions);
  const rp::tools::ChosenCollectives chosen{step, topology.ranks(), schedule};
  Progress progress{o.steps, topology.ranks()};
  std::vector<double> times;
  for (int n = 0; n < o.steps; ++n) {
    const bool first = n == 0, path = first && topology.ranks() <= most_on_a_path;
    rc::SimulationOptions options;
    options.jitter = jitter_of("--jitter", o.jitter, measured.kernel);
    options.device_jitter = jitter_of("--device-jitter", o.device_jitter, measured.device);
    options.seed = o.seed + static_cast<std::uint64_t>(n);
    options.kernels_aside = o.kernels_aside;
    options.spans = first && !o.timeline.empty();
    options.critical_path = path;
    const auto simulation = rc::simulate(chosen.uses, {step.actions}, topology, options);
    times.push_back(simulation.time());
    progress.done(n + 1);
    if (!first) continue;
    std::cout << step.replicas * topology.ranks() << " replicas on " << o.hosts << " host(s) x " << o.devices_per_host << " device(s)\n";
    tell_collectives(chosen, step.collectives);
    if (path) tell_critical_path(simulation, step.collectives);
    tell_busiest_links(simulation);
    std::cout.flush();
    if (!o.timeline.empty()) write_timeline(o.timeline, simulation, step.collectives, o.devices_per_host);
  }
  std::cout << "one device alone: " << text_of(step.microseconds) << "\nstep: " << text_of(median(times));
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  if (o.steps > 1) std::cout << " (median of " << o.steps << "; " << text_of(*least) << " to " << text_of(*most) << ")";
  std::cout << "\nefficiency: " << percent(step.microseconds / median(times)) << '\n';
}

// Simulates the steps that were run.
void run_again(const Options& o) {
  if (o.trace.empty()) throw rp::BuildError{"--as-run simulates the steps of a trace: give --trace FILE of the run that wrote the plan"};
  const auto plan = read("--plan", o.plan), trace = read("--trace", o.trace);
  const auto run = about("--trace", o.trace, [&] { return rp::tools::read_run(plan, trace); });
  const auto topology = topology_of(o, run.devices_per_host, run.hosts);
  const rp::tools::ChosenCollectives chosen{run.collectives, {run.replicas, topology.ranks()}, rc::parse_all_reduce(o.schedule, {run.devices_per_host, run.hosts})};
  if (const auto text = rp::tools::done_otherwise(plan, run, chosen); !text.empty())
    throw rp::BuildError{"the run did " + text + ": give the --schedule of the run, or the --link and --host-link with which it was chosen"};
  std::cout << run.replicas << " replicas on " << run.hosts << " host(s) x " << run.devices_per_host << " device(s)\n";
  tell_collectives(chosen, run.collectives);
  std::vector<double> computed, measured, predicted;
  for (const auto& step : run.steps) {
    auto actions = step.actions;
    if (o.no_overlap)
      for (auto& list : actions) list = rp::tools::without_overlap(list);
    const bool first = predicted.empty();
    rc::SimulationOptions options;
    options.kernels_aside = o.kernels_aside;
    options.spans = first && !o.timeline.empty();
    options.critical_path = first;
    const auto simulation = rc::simulate(chosen.uses, actions, topology, options);
    if (first) tell_critical_path(simulation, run.collectives);
    if (options.spans) write_timeline(o.timeline, simulation, run.collectives, run.devices_per_host);
    computed.push_back(step.computed);
    measured.push_back(step.microseconds);
    predicted.push_back(simulation.time());
    std::cout << "step " << step.number << ": kernels " << text_of(computed.back()) << ", measured " << text_of(measured.back()) << ", predicted "
              << text_of(predicted.back()) << " (" << signed_percent(predicted.back() / measured.back() - 1) << ")\n";
  }
  std::cout << "median of " << run.steps.size() << " step(s): kernels " << text_of(median(computed)) << ", measured " << text_of(median(measured))
            << ", predicted " << text_of(median(predicted)) << " (" << signed_percent(median(predicted) / median(measured) - 1) << ")\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Simulates a step on other hosts, in virtual time: the kernels and collectives of a plan, with newly chosen schedules. "
      "Efficiency is a device's computing time divided by the time of the step.",
      "replicator-simulate"};
  app.footer(
      "Example:\n"
      "  train --devices cpu:0 --plan plan.json --trace trace.json\n"
      "  replicator-simulate plan.json --trace trace.json --hosts 64 --devices-per-host 4 --link 12.5GB/s,2us --jitter 5% --steps 20\n"
      "  replicator-simulate plan.json --trace trace.json --as-run --link 125MB/s,100us        predicted beside measured\n"
      "Exit code: 0; 1 if a file cannot be used; 2 for invalid flags.");
  add_flags(app, options);
  try {
    app.parse(argc, argv);
    options.as_run ? run_again(options) : run(options);
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
