// SPDX-License-Identifier: Apache-2.0
// Writes traces in the Trace Event Format, which chrome://tracing and ui.perfetto.dev can open. Source: Chrome's "Trace
// Event Format" (X: a span on a thread; b, e: a span that may overlap others; M: names).
//
//   pid = process, tid = device (counted on the process); the last thread is the input of all replicas.
//   A collective is an asynchronous span from its start to its end, beside the kernels that run meanwhile.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <replicator/io/json/json_writer.hpp>
#include <replicator/runtime/see/reports.hpp>

namespace replicator::detail {

class TraceText {
 public:
  explicit TraceText(const ProcessTrace& trace) : trace_{trace} {}

  // The events, separated by commas.
  std::string run() && {
    name_process();
    for (std::size_t s = 0; s < trace_.steps.size(); ++s)
      for (std::size_t d = 0; d < trace_.steps[s].size(); ++d) add_device(s, d);
    for (const auto& input : trace_.inputs) add_input(*input);
    return json_.text();
  }

 private:
  void name_process() {
    name("process_name", 0, trace_.name);
    for (std::size_t d = 0; d < trace_.devices.size(); ++d) name("thread_name", d, trace_.devices[d]);
    name("thread_name", trace_.devices.size(), "input");
  }
  void name(const char* what, std::size_t thread, const std::string& text) {
    json_.new_line();
    json_.object([&] {
      json_.member("ph", "M");
      json_.member("pid", trace_.process);
      json_.member("tid", thread);
      json_.member("name", what);
      json_.key("args").object([&] { json_.member("name", text); });
    });
  }
  // Microseconds, with the nanoseconds after the point.
  std::string microseconds(std::int64_t nanoseconds) const {
    char text[40];
    std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(nanoseconds / 1000), static_cast<int>(nanoseconds % 1000));
    return text;
  }
  void head(const char* phase, std::size_t thread, const std::string& name, const char* category, std::int64_t time) {
    json_.member("ph", phase);
    json_.member("pid", trace_.process);
    json_.member("tid", thread);
    json_.member("name", name);
    json_.member("cat", category);
    json_.key("ts").raw(microseconds(trace_.clock(time)));
  }

  void add_device(std::size_t s, std::size_t d) {
    const auto& device = *trace_.steps[s][d];
    device.spans().for_each([&](const DeviceTrace::Span& span) { add_span(device, s, d, span); });
    device.communications().for_each([&](const DeviceTrace::Communication& each) {
      // One id per device, collective and step. The pid separates the ids of different processes.
      const auto id = std::to_string(s) + "." + std::to_string(d) + "." + std::to_string(each.collective) + "." + std::to_string(each.step);
      add_communication(device.collective(each.collective), d, each, id);
    });
  }
  void add_span(const DeviceTrace& device, std::size_t number, std::size_t thread, const DeviceTrace::Span& span) {
    const bool whole = span.instruction == DeviceTrace::Span::whole_step;
    const DeviceTrace::Label* label = whole ? nullptr : &device.label(span.instruction);
    json_.new_line();
    json_.object([&] {
      head("X", thread, whole ? "step " + std::to_string(span.step) : label->name, whole ? "step" : category(label->kind), span.begin);
      json_.key("dur").raw(microseconds(span.end - span.begin));
      json_.key("args").object([&] {
        json_.member("step", span.step);
        if (!label) return;
        if (!label->where.empty()) json_.member("where", label->where);
        if (!label->formula.empty()) json_.member("formula", label->formula);
        if (label->replica >= 0) json_.member("replica", label->replica);
        json_.member("instruction", span.instruction);
        json_.member("plan", number);
      });
    });
  }
  static const char* category(Instruction::Kind kind) {
    return kind == Instruction::Kind::run                                       ? "kernel"
           : kind == Instruction::Kind::fold || kind == Instruction::Kind::copy ? "memory"
                                                                                : "communication";
  }
  void add_communication(const DeviceTrace::CollectiveLabel& label, std::size_t thread,
                         const DeviceTrace::Communication& each, const std::string& id) {
    json_.new_line();
    json_.object([&] {
      head("b", thread, label.name, "collective", each.started);
      json_.member("id", id);
      json_.key("args").object([&] {
        json_.member("step", each.step);
        json_.member("bytes", label.bytes);
        json_.member("members", label.members);
        json_.member("schedule", label.schedule);
        json_.key("asked").raw(microseconds(trace_.clock(each.asked)));
        json_.key("started").raw(microseconds(trace_.clock(each.started)));
        if (each.waited) json_.key("waited").raw(microseconds(trace_.clock(each.waited)));
        json_.key("finished").raw(microseconds(trace_.clock(each.finished)));
      });
    });
    json_.new_line();
    json_.object([&] {
      head("e", thread, label.name, "collective", each.finished);
      json_.member("id", id);
    });
  }
  void add_input(const InputTrace& input) {
    input.spans().for_each([&](const InputTrace::Span& span) {
      json_.new_line();
      json_.object([&] {
        head("X", trace_.devices.size(), "input of replica " + std::to_string(span.replica), "input", span.begin);
        json_.key("dur").raw(microseconds(span.end - span.begin));
        json_.key("args").object([&] { json_.member("for step", span.step); });
      });
    });
  }

  const ProcessTrace& trace_;
  JsonWriter json_;
};

template <class>
std::string trace_events(const ProcessTrace& trace) { return TraceText{trace}.run(); }

template <class>
std::string trace_file(const std::vector<std::string>& events, const std::vector<std::int64_t>& uncertainties) {
  JsonWriter json;
  json.object([&] {
    json.member("displayTimeUnit", "ms");
    json.key("otherData").object([&] {
      json.member("clock", "of process 0; the clocks of the others are within so many nanoseconds of it:");
      json.values("clock_uncertainty_ns", uncertainties);
    });
    json.key("traceEvents").array([&] {
      for (const auto& each : events)
        if (!each.empty()) json.raw(each);
    });
  });
  return json.text() + "\n";
}

}  // namespace replicator::detail
