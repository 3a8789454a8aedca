// SPDX-License-Identifier: Apache-2.0
// Runs the step that a researcher wrote for one replica on all of them, wherever they are.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/data/deal.hpp>
#include <replicator/replicate/engine.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/replicate/step.hpp>

namespace replicator {

struct ReplicateOptions {
  // False for a step that comes and goes beside others, as a validation does: checkpoints know nothing of it, and it begins anew in a run
  // that is resumed. Its variables are kept.
  bool checkpointed = true;
};

class Replicator {
 public:
  // Meets the other processes of the job, if there are any. Throws BuildError for a deployment that cannot be (more devices
  // than replicas, unknown devices, processes that differ), DeviceError for missing devices, CommunicationError for missing processes.
  explicit Replicator(Deployment deployment = {}) : engine_{detail::make_engine(std::move(deployment))} {}

  const Deployment& deployment() const { return engine_->deployment(); }
  int replicas() const { return deployment().replicas; }
  // This process, and how many the job has. Process 0 is the one to print and to write files.
  int process() const { return engine_->process(); }
  int processes() const { return engine_->processes(); }
  // The context that input_fn is called with for a replica of this host.
  InputContext input_context(int replica) const { return engine_->input_context(replica); }

  // Calls input_fn(const InputContext&) for each of this host's replicas: it returns an input range of Array<T> or of
  // tuples of them. An input_fn(const HostContext&) is called once, and its elements are dealt to this host's replicas
  // in turn. Traces step_fn(ReplicaContext&, Tensor<T>...) once for each, one tensor per component of an element,
  // resolves and plans. step_fn returns a tensor, a tuple of tensors, or nothing. Steps of one Replicator share its
  // variables.
  // Elements may have other shapes from step to step, and on each replica, as long as what replicas contribute and return is of equal shapes.
  // Throws BuildError for every mistake that graphs, shapes and options show; nothing has moved then.
  // A run that is resumed (--resume) makes its checkpointed steps in the order in which they were first made; each goes on where it was.
  template <class InputFn, class StepFn>
  auto replicate(InputFn input_fn, StepFn step_fn, ReplicateOptions options = {}) {
    constexpr bool per_replica = std::is_invocable_v<InputFn&, const InputContext&>;
    constexpr bool per_host = !per_replica && std::is_invocable_v<InputFn&, const HostContext&>;
    static_assert(per_replica || per_host, "replicator: input_fn must be callable with (const rp::InputContext&), or with (const rp::HostContext&)");
    if constexpr (per_replica) {
      using Range = std::remove_cvref_t<std::invoke_result_t<InputFn&, const InputContext&>>;
      data::require_input<Range>();
      if constexpr (data::Input<Range>)
        return replicate_range<Range>(
            [input_fn = std::make_shared<InputFn>(std::move(input_fn))] {
              return [input_fn](const InputContext& context) { return (*input_fn)(context); };
            },
            std::move(step_fn), options);
    } else if constexpr (per_host) {
      using Range = std::remove_cvref_t<std::invoke_result_t<InputFn&, const HostContext&>>;
      data::require_input<Range>();
      if constexpr (data::Input<Range>) return replicate_dealt(input_fn, std::move(step_fn), options);
    }
  }

  // SHA-256 (hexadecimal) over all variables in the order of names: what two runs are compared by. Every process calls it.
  std::string digest() { return engine_->digest(); }

  // Writes a checkpoint of this moment into the folder of --checkpoint, and returns the file's name once it is on the disk; where there is
  // no such folder it does nothing and returns an empty one. Every process calls it. Throws DataError where it cannot be written, BuildError
  // where the run could not be resumed from it.
  std::string save_checkpoint() { return engine_->save_checkpoint(); }

  // The signal that a StopOnSignal of some process has caught, on all processes after the same step; 0 before. It stays, so a Replicator's
  // steps() are at their end; a step() after it, as of a last validation, is as good as any.
  int stop_signal() const { return engine_->stop_signal(); }

  std::vector<std::string> variables() const { return engine_->variables(); }
  const VariableDeclaration& declaration(const std::string& name) const { return engine_->declaration(name); }
  // The value of a variable as it is now: of a replica-local one, that of this host's replica `local`. From devices with memory of their own
  // it is brought when it is asked for, so ask again after a step. Throws BuildError for unknown names, DeviceError where a step has failed
  // while it changed the variable there.
  const AnyArray& value(const std::string& name, int local = 0) const { return engine_->value(name, local); }
  // Gives every copy this value. In a job of several processes each must do the same. Throws BuildError where the type differs.
  void set(const std::string& name, const AnyArray& value) { engine_->set(name, value); }

 private:
  template <class InputFn, class StepFn>
  auto replicate_dealt(InputFn& input_fn, StepFn step_fn, ReplicateOptions options) {
    if (deployment().regime == Regime::asynchronous)
      throw BuildError{
          "input_fn takes a rp::HostContext, so its elements are dealt to replicas in turn: with --regime async replicas take no turns; "
          "let it take a rp::InputContext and give the elements of one replica, or run with --regime sync"};
    const auto dealt = [engine = engine_.get(), input_fn = std::make_shared<InputFn>(std::move(input_fn))] {
      const int first = engine->first_replica(), end = engine->end_replica();
      return data::deal((*input_fn)(HostContext{engine->process(), engine->processes(), first, end, engine->input_context(first)}),
                        end - first);
    };
    using Hands = decltype(dealt());
    return replicate_range<typename Hands::value_type>(
        [engine = engine_.get(), dealt] {
          // Filled when the first one is asked for: a replay asks for none.
          return [engine, dealt, hands = Hands{}](const InputContext& context) mutable {
            if (hands.empty()) hands = dealt();
            return std::move(hands[static_cast<std::size_t>(context.replica() - engine->first_replica())]);
          };
        },
        std::move(step_fn), options);
  }
  // `begin()` gives what gives each of this host's replicas its range.
  template <class Range, class Begin, class StepFn>
  auto replicate_range(Begin begin, StepFn step_fn, ReplicateOptions options) {
    using Types = detail::InputTypes<data::InputValue<Range>>;
    if constexpr (Types::template require_step<StepFn, ReplicaContext>()) {
      using Result = decltype(Types::call(std::declval<StepFn&>(), std::declval<ReplicaContext&>(), std::declval<const std::vector<AnyTensor>&>()));
      using Plain = std::remove_cvref_t<Result>;
      if constexpr (detail::require_results<Plain>()) {
        const int ordinal = engine_->next_ordinal(options.checkpointed);
        detail::Trace trace = [step_fn = std::move(step_fn)](ReplicaContext& context, const std::vector<AnyTensor>& x) mutable {
          Graph& graph = context.graph();
          if constexpr (std::is_void_v<Plain>) Types::call(step_fn, context, x);
          else
            for (const auto& tensor : detail::StepResult<Plain>::tensors(Types::call(step_fn, context, x))) {
              if (!tensor.in(graph)) Graph::refuse_foreign("replica " + std::to_string(graph.replica()) + ": what step_fn returns");
              graph.results().push_back(tensor.value());
            }
          graph.set_complete();
        };
        return make_step<Plain>(ordinal, options, make_inputs<Range>(std::move(begin), ordinal), std::move(trace));
      }
    }
  }
  template <class Range, class Begin>
  detail::MakeInputs make_inputs(Begin begin, int ordinal) {
    return [engine = engine_.get(), begin = std::move(begin), ordinal] {
      std::vector<std::unique_ptr<detail::InputSource>> inputs;
      const auto components = detail::InputTypes<data::InputValue<Range>>::dtypes();
      if (auto recorded = engine->recorded_input(ordinal, components)) {
        inputs.push_back(std::move(recorded));
        return inputs;
      }
      auto range_of = begin();
      for (int replica = engine->first_replica(); replica < engine->end_replica(); ++replica)
        inputs.push_back(std::make_unique<detail::RangeSource<Range>>(range_of(engine->input_context(replica))));
      return inputs;
    };
  }
  template <class Result>
  auto make_step(int ordinal, ReplicateOptions options, detail::MakeInputs inputs, detail::Trace trace) {
    auto driver = engine_->drive(ordinal, options.checkpointed, std::move(inputs), std::move(trace));
    return wrap(std::move(driver), std::type_identity<typename detail::StepResult<Result>::Arrays>{});
  }
  template <class... A>
  Step<A...> wrap(std::unique_ptr<detail::StepDriver> driver, std::type_identity<std::tuple<A...>>) const {
    return Step<A...>{engine_, std::move(driver), replicas()};
  }

  std::shared_ptr<detail::Engine> engine_;  // steps share it
};

}  // namespace replicator
