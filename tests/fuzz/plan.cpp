// SPDX-License-Identifier: Apache-2.0
// Fuzzes the input of replicator-simulate, plan.json and trace.json, and simulates the step.
// covers: ../../tools/simulated_step.hpp
#include "../../tools/simulated_step.hpp"

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  const auto zero = text_of(input).find('\0');
  const auto plan_text = text_of(input).substr(0, zero);
  const auto trace_text = zero == std::string_view::npos ? std::string_view{} : text_of(input).substr(zero + 1);
  documented<DataError, BuildError, nlohmann::json::exception>("", [&] {
    const auto plan = nlohmann::json::parse(plan_text);
    const auto trace = trace_text.empty() ? nlohmann::json{} : nlohmann::json::parse(trace_text);
    const auto step = tools::read_step(plan, trace, trace_text.empty() ? 1000 : 0);
    if (step.replicas > 64 || step.collectives.size() > 4) return;
    const collectives::Topology topology{{{2, {1, 1000}}, {2, {10, 100}}}, 1000};
    const tools::ChosenCollectives chosen{step, topology.ranks(), {}};
    const double time = collectives::simulate(chosen.uses, {step.actions}, topology, {}).time();
    require(time >= 0, "a step that takes no time that there is");
  });
}

std::vector<std::string> seeds() {
  const std::string plan =
      R"({"format":"replicator plan 1","number":0,"processes":[{"process":0,"schedules":[{"root":0,"any_order":false}],"devices":[{"replicas":[0,1],)"
      R"("collectives":[{"text":"all_reduce","schedule":0,"kind":"all_reduce","dtype":"float32","elements":1000}],)"
      R"("instructions":[{"do":"run","inputs":[{"bytes":400}],"outputs":[{"bytes":4}]},{"do":"start","collective":0},{"do":"run","outputs":[{"bytes":8}]},{"do":"wait","collective":0}]}]}]})";
  const std::string trace =
      R"({"traceEvents":[{"ph":"X","pid":0,"tid":0,"dur":3.5,"args":{"instruction":0,"plan":0}},{"ph":"M","pid":0}]})";
  return {plan, plan + std::string(1, '\0') + trace};
}

}  // namespace replicator::fuzz
