// SPDX-License-Identifier: Apache-2.0
// ResultPlacer: places a step's results in arrays of the program. Small results then travel to all hosts.
#pragma once

#include <cstddef>
#include <cstdint>

#include <replicator/runtime/plan/collective_placer.hpp>
#include <replicator/runtime/plan/plan_request.hpp>
#include <replicator/runtime/plan/program_builder.hpp>
#include <replicator/runtime/plan/value_buffers.hpp>

namespace replicator::detail {

class ResultPlacer {
 public:
  ResultPlacer(const PlanRequest& request, ProgramBuilder& builder, CollectivePlacer& collectives, ValueBuffers& values)
      : request_{request}, builder_{builder}, collectives_{collectives}, values_{values} {}

  // The first device of a replica has its results; uniform results are copied once.
  void copy_results() {
    const int first = request_.class_of(0);
    program_.results.resize(request_.lowered_graph(first).results.size());
    for (std::size_t k = 0; k < program_.results.size(); ++k) {
      const bool uniform = request_.source(first).uniformity.uniform_results[k];
      program_.uniform_result.push_back(uniform);
      for (int r = 0; r < (uniform ? 1 : request_.replicas()); ++r) copy_result(k, r);
      if (travels(k)) carried_ = position();
    }
  }

  // Sends each replica's small results, and the word about its next element, to all hosts. On a single host it only
  // makes the devices meet before one of them changes a variable, because a failed step must change nothing.
  void exchange() {
    builder_.set_origin(ProgramBuilder::none, ProgramBuilder::none, -1);
    lay_out_block();
    auto& exchange = program_.exchange;
    exchange.upcoming.assign(static_cast<std::size_t>(request_.replicas()), upcoming_with(0));
    exchange.collective = collectives_.add({CollectiveKind::all_gather, DType::uint8, Reduction::sum, static_cast<std::int64_t>(exchange.block), 0,
                                            false, "the exchange of the step's results", 0});
    auto& use = program_.collectives[exchange.collective];
    use.asked = carried_ == ProgramBuilder::none ? position() : carried_;
    for (int r = 0; r < request_.replicas(); ++r) fill_block(use.collective->input(r), r);
    builder_.append_collective(Instruction::Kind::start, exchange.collective);
    collectives_.wait_for(exchange.collective);
  }

 private:
  std::uint32_t position() const { return static_cast<std::uint32_t>(program_.code.size()); }

  void copy_result(std::size_t k, int r) {
    const int c = request_.class_of(r);
    const auto& graph = request_.source(c).graph;
    const auto result = graph.results()[k];
    builder_.set_origin(static_cast<std::uint32_t>(c), result.node, request_.begin() + r);
    const auto buffer = values_.operand(c, request_.lowered_graph(c).results[k], r);
    auto& array = program_.results[k].emplace_back(host_array(builder_.support().staging, graph.type(result)));
    builder_.copy(buffer, builder_.fixed_buffer(array.data(), array.size_bytes()), array.size_bytes());
  }

  bool travels(std::size_t k) const {
    return request_.several_hosts && !program_.uniform_result[k] && program_.results[k][0].size_bytes() <= ResultExchange::largest_result;
  }
  void lay_out_block() {
    auto& exchange = program_.exchange;
    exchange.block = sizeof(std::uint64_t);
    exchange.offsets.assign(program_.results.size(), 0);
    for (std::size_t k = 0; k < program_.results.size(); ++k) {
      if (!travels(k)) continue;
      exchange.offsets[k] = exchange.block;
      exchange.block += (program_.results[k][0].size_bytes() + 7) / 8 * 8;
    }
  }
  void fill_block(std::byte* block, int r) {
    const auto& exchange = program_.exchange;
    copy(reinterpret_cast<const std::byte*>(&exchange.upcoming[static_cast<std::size_t>(r)]), block, sizeof(std::uint64_t));
    for (std::size_t k = 0; k < program_.results.size(); ++k) {
      if (!exchange.offsets[k]) continue;
      const auto& array = program_.results[k][static_cast<std::size_t>(r)];
      copy(array.data(), block + exchange.offsets[k], array.size_bytes());
    }
  }
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) {
    builder_.copy(builder_.fixed_buffer(const_cast<std::byte*>(from), bytes), builder_.fixed_buffer(to, bytes), bytes);
  }

  const PlanRequest& request_;
  ProgramBuilder& builder_;
  Program& program_ = builder_.program();
  CollectivePlacer& collectives_;
  ValueBuffers& values_;
  std::uint32_t carried_ = ProgramBuilder::none;  // the instruction at which all results that travel are ready
};

}  // namespace replicator::detail
