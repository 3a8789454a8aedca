// SPDX-License-Identifier: Apache-2.0
// explain(): describes a device's program in sentences: schedules and costs of its collectives, its most expensive
// nodes, and copies between layouts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/collectives/choose/predicted_time.hpp>
#include <replicator/core/quantile.hpp>
#include <replicator/devices/device_kind.hpp>
#include <replicator/graph/fused_reduce.hpp>
#include <replicator/graph/rewrite.hpp>
#include <replicator/graph/rows.hpp>
#include <replicator/runtime/see/instruction_text.hpp>
#include <replicator/runtime/see/layout_copies.hpp>
#include <replicator/runtime/see/quantity_text.hpp>
#include <replicator/runtime/see/reports.hpp>

namespace replicator::detail {

// The number of arithmetic operations of a node. For Map and Reduce, joined or not, they are counted in the expressions. Other
// operations state their number (`work`); else it is one for each output element.
inline double operations_of(const Graph& graph, std::uint32_t index) {
  const auto& node = graph.node(index);
  const auto count = [](const Expression& expression) {
    return static_cast<double>(std::count_if(expression.code.begin(), expression.code.end(), [](const auto& i) { return operands_of(i.op) > 0; }));
  };
  if (const auto* map = operation_of<Map>(node)) return count(*map->expression) * static_cast<double>(map->domain.elements());
  if (const auto* reduce = operation_of<Reduce>(node))
    return (count(*reduce->expression) + static_cast<double>(node.outputs.size())) * static_cast<double>(reduce->domain.elements());
  if (const auto* fused = operation_of<FusedReduce>(node))
    return (count(*fused->reduce.expression) + static_cast<double>(fused->reduce.dtypes.size())) * static_cast<double>(fused->reduce.domain.elements()) +
           count(*fused->epilogue) * static_cast<double>(node.outputs[0].shape.elements());
  if (const auto* rows = operation_of<Rows>(node)) {
    double work = 0;
    for (const auto& step : rows->steps) {
      const double elements = step.what == Rows::Step::What::map_rows ? static_cast<double>(rows->rows) : static_cast<double>(rows->rows) * static_cast<double>(rows->columns);
      work += (count(*step.expression) + (step.reduces() ? static_cast<double>(step.dtypes.size()) : 0)) * elements;
    }
    return work;
  }
  std::vector<TensorType> inputs;
  for (const auto input : node.inputs) inputs.push_back(graph.type(input));
  const auto* compute = node.get<Compute>();
  if (const double work = compute ? compute->operation.work(inputs) : 0; work > 0) return work;
  double elements = 0;
  for (const auto& output : node.outputs) elements += static_cast<double>(output.shape.elements());
  return elements;
}

class Explanation {
 public:
  Explanation(const Resolution& resolution, const Program& program, const DeviceTrace* trace, const ExplainOptions& options)
      : resolution_{resolution}, program_{program}, trace_{trace}, options_{options} {}

  std::string run() && {
    measure();
    for (std::uint32_t c = 0; c < program_.collectives.size(); ++c) add_collective(c);
    add_nodes();
    return text_ + layout_copies_text(resolution_, program_, instruction_seconds_);
  }

 private:
  struct Cost {
    std::string_view kernel;
    std::uint32_t runs = 0, nodes = 0;  // nodes: of a merged launch
    double seconds = 0, bytes = 0;
    double operations = 0, done = 0;  // arithmetic of the operations, and what their kernels really do
  };
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // class, node

  void measure() {
    communication_.resize(program_.collectives.size());
    instruction_seconds_.resize(program_.code.size());
    if (!trace_) return;
    trace_->communications().for_each([&](const DeviceTrace::Communication& each) {
      communication_[each.collective].push_back(static_cast<double>(each.finished - each.started) * 1e-9);
    });
    std::vector<std::vector<double>> times(program_.code.size());
    trace_->spans().for_each([&](const DeviceTrace::Span& span) {
      if (span.instruction == DeviceTrace::Span::whole_step) return;
      times[span.instruction].push_back(static_cast<double>(span.end - span.begin) * 1e-9);
      timed_ = true;
    });
    for (std::size_t i = 0; i < times.size(); ++i) instruction_seconds_[i] = median(std::move(times[i]));
  }

  // A rank receives `moved` bytes on average. The prediction is for the busiest rank, which may receive more.
  void add_collective(std::uint32_t index) {
    const auto& use = program_.collectives[index];
    const auto& schedule = use.schedule;
    const double chunk = static_cast<double>(use.bytes) / schedule.chunks;
    const double moved = static_cast<double>(collectives::moved_chunks(schedule)) * chunk / schedule.ranks();
    text_ += use.text + ": " + std::to_string(use.bytes) + " B; " + use.reason;
    if (use.bucket != CollectiveUse::none) text_ += "; bucket " + std::to_string(use.bucket) + " of " + std::to_string(use.members) + " member(s)";
    if (schedule.ranks() > 1) {
      char factor[16];
      std::snprintf(factor, sizeof factor, "%.2f", collectives::bytes_factor(schedule));
      text_ += "; " + large_text(moved) + "B to each rank in " + std::to_string(collectives::steps(schedule)) + " step(s)";
      if (schedule.kind == CollectiveKind::all_reduce) text_ += std::string{", "} + factor + " times a ring's bytes";
      const collectives::Link link{options_.machine.latency * 1e6, options_.machine.wire_bytes * 1e-6};
      const double predicted =
          use.predicted > 0 ? use.predicted : collectives::predicted_microseconds(schedule, static_cast<std::int64_t>(use.bytes), link);
      text_ += "; predicted " + seconds_text(predicted * 1e-6) + (use.predicted > 0 ? " on the topology" : "");
      if (!communication_[index].empty()) text_ += ", measured " + seconds_text(median(communication_[index])) + " (start to end, median)";
    }
    text_ += "\n";
  }

  void add_nodes() {
    std::map<Key, Cost> costs;
    double seconds = 0, operations = 0;
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      const auto& instruction = program_.code[i];
      if (instruction.kind != Instruction::Kind::run || instruction.relayout || instruction.graph == Instruction::none) continue;
      auto& cost = costs[{instruction.graph, instruction.node}];
      double work = 0;
      for (const auto& part : parts_of(program_, instruction)) work += operations_of(resolution_.classes[part.graph].graph, part.node);
      cost.kernel = instruction.executable->kernel;
      cost.nodes = std::max(cost.nodes, instruction.parts);
      ++cost.runs;
      cost.seconds += instruction_seconds_[i];
      cost.operations += work;
      cost.done += work * instruction.executable->arithmetic;
      cost.bytes += bytes_of(instruction);
      seconds += instruction_seconds_[i];
      operations += work;
    }
    std::vector<std::pair<Key, Cost>> sorted{costs.begin(), costs.end()};
    std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
      return timed_ ? a.second.seconds > b.second.seconds : a.second.operations > b.second.operations;
    });
    if (sorted.size() > options_.nodes) sorted.resize(options_.nodes);
    if (sorted.empty()) return;
    text_ += "the nodes that cost most on this device, by " + std::string{timed_ ? "measured time" : "operations (time steps to have times)"} + ":\n";
    for (const auto& [key, cost] : sorted) add_node(key, cost, timed_ ? cost.seconds / std::max(seconds, 1e-12) : cost.operations / std::max(operations, 1.0));
    if (std::any_of(sorted.begin(), sorted.end(), [&](const auto& each) { return share_of_roofline(each.second) > 1.005; }))
      text_ += "  more than 100 % of the roofline: the data came from caches, which are faster than memory, or the machine's figures are too low\n";
  }
  double bytes_of(const Instruction& instruction) const {
    double bytes = 0;
    const auto end = instruction.pointers + instruction.inputs + instruction.executable->output_layouts.size();
    for (auto p = instruction.pointers; p < end; ++p) bytes += static_cast<double>(program_.pointer_bytes[p]);
    return bytes;
  }
  void add_node(const Key& key, const Cost& cost, double part) {
    const auto& graph = resolution_.classes[key.first].graph;
    const auto& node = graph.node(key.second);
    text_ += "  " + percent_text(part) + "  " + node_text(graph, key.second) + " at " + node.where.text();
    if (const auto formula = formula_of(node, 60); !formula.empty()) text_ += " (" + formula + ")";
    if (cost.nodes) text_ += " and " + std::to_string(cost.nodes - 1) + " more in one launch";
    text_ += " by " + std::string{cost.kernel} + ": " + std::to_string(cost.runs) + " run(s), " + large_text(cost.operations) + "FLOP, " + large_text(cost.bytes) + "B";
    if (timed_ && cost.seconds > 0) text_ += ", " + seconds_text(cost.seconds) + roofline(cost);
    text_ += "\n";
  }
  double arithmetic_seconds(const Cost& cost) const { return cost.done / options_.machine.flops; }
  double memory_seconds(const Cost& cost) const { return cost.bytes / options_.machine.memory_bytes; }
  // The time that arithmetic or memory alone would need, the longer of both, divided by the measured time. 0: not known.
  double share_of_roofline(const Cost& cost) const {
    if (!timed_ || cost.seconds <= 0 || options_.machine.flops <= 0 || options_.machine.memory_bytes <= 0) return 0;
    return std::max(arithmetic_seconds(cost), memory_seconds(cost)) / cost.seconds;
  }
  std::string roofline(const Cost& cost) const {
    if (options_.machine.flops <= 0 || options_.machine.memory_bytes <= 0) return "";
    return ", " + percent_text(share_of_roofline(cost)) + " of the roofline (" + (arithmetic_seconds(cost) > memory_seconds(cost) ? "arithmetic" : "memory") + ")";
  }

  const Resolution& resolution_;
  const Program& program_;
  const DeviceTrace* trace_;
  const ExplainOptions& options_;
  std::string text_;
  std::vector<std::vector<double>> communication_;  // seconds of each step, by collective
  std::vector<double> instruction_seconds_;
  bool timed_ = false;
};

template <class>
std::string limits_text(DeviceKind kind, const MachineFigures& figures, bool measured) {
  const std::string device = "limits of a " + std::string{name_of(kind)} + " device";
  if (!measured) return device + ": not measured, only those of devices that compute on the host are; give yours in ExplainOptions::machine\n";
  return device + ", measured: " + large_text(figures.flops) + "FLOP/s, " + large_text(figures.memory_bytes) + "B/s\n";
}

template <class>
std::string explain(const Resolution& resolution, const Program& program, const DeviceTrace* trace, const ExplainOptions& options) {
  return Explanation{resolution, program, trace, options}.run();
}

}  // namespace replicator::detail
