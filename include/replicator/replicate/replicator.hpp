// SPDX-License-Identifier: Apache-2.0
// Replicator: runs a step that was written for one replica on all replicas, on any placement.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <replicator/core/number_text.hpp>
#include <replicator/core/program_exception.hpp>
#include <replicator/data/deal.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/replicate/engine.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/replicate/step.hpp>

namespace replicator {

struct ReplicateOptions {
  // False for an auxiliary step, such as a validation. Checkpoints do not count such a step, so a resumed run starts it
  // from the beginning. Its variables are saved.
  bool checkpointed = true;
};

namespace detail {

// Appends what the step function returns to the graph's results. Throws BuildError for a tensor of another graph.
template <class = void>
void add_results(Graph& graph, const std::vector<AnyTensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (!tensor.in(graph)) Graph::refuse_foreign("replica " + std::to_string(graph.replica()) + ": what step_fn returns", tensor);
    graph.results().push_back(tensor.value());
  }
}

// Throws the exception at work in a step_fn again. The message of a BuildError then names the replica, and a source line: that of
// replicate() for functions that know none, such as Shape::operator[]. The program's own exceptions are thrown as they are, and a
// line on stderr says the replica.
template <class = void>
[[noreturn]] void rethrow_from_step(int replica, Location where) {
  const std::string step = "the step_fn given to replicate at " + where.text();
  try {
    throw;
  } catch (const GraphIsGone& error) {
    throw BuildError{step + ": " + error.what()};
  } catch (const BuildError& error) {
    const std::string text = error.what(), who = "replica " + std::to_string(replica);
    if (typeid(error) != typeid(BuildError)) throw;
    if (!names_a_line(text)) throw BuildError{text + " (in " + step + ", traced for " + who + ")"};
    if (text.find(who) != std::string::npos) throw;
    throw BuildError{who + ": " + text};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    report_program_exception("in " + step + ", traced for replica " + std::to_string(replica), error);
    throw;
  }
}

// Once for each line.
template <class = void>
void warn_of_equal_inputs(Engine& engine, Location where) {
  const int replicas = engine.deployment().replicas;
  if (replicas == 1 || engine.first_replica() != 0 || engine.end_replica() != replicas) return;  // processes may differ in their inputs
  if (!engine.warned_of_equal_inputs.insert({where.file, where.line}).second) return;
  std::fprintf(stderr,
               "replicator: all %d replicas of replicate() at %s read the same elements: its input_fn asks neither for its replica nor for its shard. "
               "Give each its part by \"| rp::data::shard(context)\", or call context.same_on_all_replicas() if this is meant\n",
               replicas, where.text().c_str());
}

// Opens the input of one replica of this host. The place is for error messages.
using SourceOf = std::function<std::unique_ptr<InputSource>(const InputContext&, const ElementPlace&)>;

// Returns the function that opens the inputs of step `ordinal` for all replicas of this host. The engine calls it again when this
// host gets other replicas.
// - components: the types of an element's components.
// - per_host: input_fn is called once for all replicas of this host. Error messages say so.
// - begin: returns the function that opens the input of one replica. A replay reads its recording, and does not call it.
template <class = void>
MakeInputs make_inputs(Engine& engine, int ordinal, std::vector<DType> components, Location where, bool per_host, std::function<SourceOf()> begin) {
  return [&engine, ordinal, components = std::move(components), where, per_host, begin = std::move(begin)]() {
    std::vector<std::unique_ptr<InputSource>> inputs;
    if (auto recorded = engine.recorded_input(ordinal, components)) {
      inputs.push_back(std::move(recorded));
      return inputs;
    }
    const SourceOf source_of = begin();
    bool apart = false;
    for (int replica = engine.first_replica(); replica < engine.end_replica(); ++replica) {
      const InputContext context = engine.input_context(replica);
      try {
        inputs.push_back(source_of(context, {replica, where}));
      } catch (...) {
        rethrow_with("in the input_fn given to replicate at " + where.text() + ", called for " + (per_host ? "all replicas of this process" : "replica " + std::to_string(replica)));
      }
      apart = apart || context.tells_replicas_apart();
    }
    if (!apart) warn_of_equal_inputs(engine, where);
    return inputs;
  };
}

// Throws BuildError if the variable has another number of elements.
template <class = void>
void require_one_element(const VariableDeclaration& declared) {
  if (declared.type.shape.elements() != 1)
    throw BuildError{"the variable \"" + declared.name + "\" is " + declared.type.text() + " (declared at " + declared.where.text() +
                     "), and not one number: give or take an rp::AnyArray of that type, by set and value"};
}

template <Element T>
[[noreturn]] void refuse_number(Number value, const VariableDeclaration& declared) {
  std::string instead = "a number that " + std::string{name_of(dtype_of<T>)} + " can hold";
  if constexpr (std::is_same_v<T, bool>) instead = "0 or 1";
  else if constexpr (std::is_integral_v<T>)
    instead = "a whole number from " + std::to_string(std::numeric_limits<T>::min()) + " to " + std::to_string(std::numeric_limits<T>::max());
  const bool whole = value.fits<std::int64_t>();
  throw BuildError{"the number " + (whole ? std::to_string(value.whole()) : number_text(value.real())) + " does not fit into the variable \"" +
                   declared.name + "\", which is " + declared.type.text() + " (declared at " + declared.where.text() + "): give " + instead};
}

// The number as a value of the variable. Throws BuildError if the variable has another number of elements, or the number does not fit.
template <class = void>
AnyArray array_of(Number value, const VariableDeclaration& declared) {
  require_one_element(declared);
  AnyArray array{declared.type};
  visit_dtype(array.dtype(), [&]<class T>() {
    if (!value.fits<T>()) refuse_number<T>(value, declared);
    array.as<T>()[0] = value.as<T>();
  });
  return array;
}

template <class = void>
[[noreturn]] void refuse_moved_replicator() {
  throw BuildError{"this Replicator was moved from: use the rp::Replicator that it was moved to"};
}

// The first element.
template <class = void>
Number number_in(const AnyArray& array) {
  return visit_dtype(array.dtype(), [&]<class T>() { return Number{array.as<T>()[0]}; });
}

}  // namespace detail

class Replicator {
 public:
  // Meets the other processes of the job, if there are any. Throws BuildError for an invalid deployment (more devices
  // than replicas, unknown devices, processes that differ), DeviceError for missing devices, and CommunicationError for
  // missing processes.
  explicit Replicator(Deployment deployment = {}) : engine_{detail::make_engine(std::move(deployment))} {}

  const Deployment& deployment() const { return engine().deployment(); }
  int replicas() const { return deployment().replicas; }
  // This process and the number of processes of the job. Process 0 is the one that should print and write files.
  int process() const { return engine().process(); }
  int processes() const { return engine().processes(); }
  // The replicas of this process: local_replicas() of them, from first_replica() on. Processes may hold different numbers of
  // replicas: 4 on 3 processes are 2, 1 and 1. In an elastic job both may change in a step.
  int first_replica() const { return engine().first_replica(); }
  int local_replicas() const { return engine().end_replica() - engine().first_replica(); }
  // The context that input_fn receives for a replica of this host.
  InputContext input_context(int replica) const { return engine().input_context(replica); }

  // Builds a step that runs on all replicas. It traces step_fn for each replica of this host, resolves the collectives,
  // and plans the programs.
  // - input_fn(const InputContext&) is called for each of this host's replicas. It returns an input range of Array<T>
  //   or of tuples of them. An input_fn(const HostContext&) is called once; its elements are dealt to this host's
  //   replicas in turn.
  // - Elements are read one step ahead, so an input cannot use the results of the step before. Pass such results to the next
  //   step by set() or by a variable: docs/data.md, "Data that depend on results".
  // - step_fn(ReplicaContext&, Tensor<T>...) is traced once for each replica, with one tensor per component of an
  //   element. It returns a tensor, a tuple of tensors, or nothing.
  // - The steps of one Replicator share its variables.
  // - Shapes of elements may differ between steps and between replicas. The tensors that replicas contribute to a
  //   collective or return must have equal shapes on all replicas.
  //
  // If no replica's input_fn asks for its replica or its shard, all replicas read the same elements. In a job of one process a
  // warning on stderr says so, once for each source line that calls replicate(). InputContext::same_on_all_replicas() says that
  // this is meant.
  //
  // Throws BuildError for every mistake that graphs, shapes and options show, before any data moves. A resumed run
  // (--resume) must build its checkpointed steps in the order of the first run. Each then continues at its own
  // position.
  template <class InputFn, class StepFn>
  auto replicate(InputFn input_fn, StepFn step_fn, ReplicateOptions options = {}, std::source_location where = std::source_location::current()) {
    constexpr bool per_replica = std::is_invocable_v<InputFn&, const InputContext&>;
    constexpr bool per_host = !per_replica && std::is_invocable_v<InputFn&, const HostContext&>;
    constexpr bool mistake_inside = detail::parameters_fit<InputFn, const InputContext&>() || detail::parameters_fit<InputFn, const HostContext&>();
    static_assert(per_replica || per_host || mistake_inside, "replicator: input_fn must be callable with (const rp::InputContext&), or with (const rp::HostContext&)");
    if constexpr (per_replica) {
      using Range = std::remove_cvref_t<std::invoke_result_t<InputFn&, const InputContext&>>;
      data::require_input<Range>();
      if constexpr (data::Input<Range>)
        return replicate_range<Range>(
            [input_fn = std::make_shared<InputFn>(std::move(input_fn))] {
              return [input_fn](const InputContext& context) { return (*input_fn)(context); };
            },
            std::move(step_fn), options, where, false);
    } else if constexpr (per_host) {
      using Range = std::remove_cvref_t<std::invoke_result_t<InputFn&, const HostContext&>>;
      data::require_input<Range>();
      if constexpr (data::Input<Range>) return replicate_dealt(input_fn, std::move(step_fn), options, where);
    }
  }

  // The same for a step without input, which never ends: step_fn(ReplicaContext&).
  template <class StepFn>
  requires(std::is_invocable_v<StepFn&, ReplicaContext&> || detail::parameters_fit<StepFn, ReplicaContext&>()) auto replicate(StepFn step_fn, ReplicateOptions options = {}, std::source_location where = std::source_location::current()) {
    const auto nothing = [](const InputContext& context) {
      context.same_on_all_replicas();
      return data::from_generator([](std::int64_t) { return Array<bool>{Shape{}}; });
    };
    if constexpr (std::is_invocable_v<StepFn&, ReplicaContext&>)  // else an error in step_fn has been told of
      return replicate(
          nothing, [step_fn = std::move(step_fn)](ReplicaContext& replica, Tensor<bool>) mutable { return step_fn(replica); }, options, where);
  }

  // SHA-256 (hexadecimal) over all variables in the order of their names, to compare two runs. Every process calls it.
  std::string digest() { return engine().digest(); }

  // Writes a checkpoint of the present state into the folder of --checkpoint. Returns the file's name once it is on the
  // disk. Without such a folder it does nothing and returns an empty name. Every process calls it. Throws DataError if
  // the file cannot be written, and BuildError if the run could not be resumed from it.
  std::string save_checkpoint() { return engine().save_checkpoint(); }

  // The signal that a StopOnSignal of any process has caught; 0 if none. All processes learn of it after the same step.
  // The value stays, so steps() ends. A single step() is still allowed afterwards, for instance for a last validation.
  int stop_signal() const { return engine().stop_signal(); }

  std::vector<std::string> variables() const { return engine().variables(); }
  const VariableDeclaration& declaration(const std::string& name) const { return engine().declaration(name); }
  // The present value of a variable. For a replica-local variable it is that of this host's replica `local`. A value in
  // device memory is copied to the host by this call, so call again after each step. Throws BuildError for unknown
  // names, and DeviceError if a step has failed while it changed the variable there.
  const AnyArray& value(const std::string& name, int local = 0, std::source_location where = std::source_location::current()) const {
    return detail::at_line("value", where, [&]() -> const AnyArray& { return engine().value(name, local); });
  }
  // The same for a variable of one element, as a number: repl.get<float>("learning_rate"). It is converted to T. Throws
  // BuildError too if the variable has another number of elements.
  template <class T>
  requires std::is_arithmetic_v<T> T get(const std::string& name, int local = 0, std::source_location where = std::source_location::current())
  const {
    return detail::at_line("get", where, [&] {
      detail::require_one_element(engine().declaration(name));
      return detail::number_in(engine().value(name, local)).template as<T>();
    });
  }
  // Sets every copy of a variable that this process holds. Throws BuildError if the type differs, or the array has no memory. In a job of several
  // processes each must set the same value. For mirrored variables the next step compares that: it throws the same
  // BuildError on all processes, with the variable and the lines. digest() and save_checkpoint() compare it too. The
  // asynchronous regime compares nothing.
  void set(const std::string& name, const AnyArray& value, std::source_location where = std::source_location::current()) {
    detail::at_line("set", where, [&] { engine().set(name, value, {}, where); });
  }
  template <Element T>
  void set(const std::string& name, const Array<T>& value, std::source_location where = std::source_location::current()) {
    set(name, value.any(), where);
  }
  // Sets a replica-local variable of this host's replica `local`, which value(name, local) reads. The host then computes something
  // for each replica from its results, such as advantages. Throws BuildError too for a mirrored variable, and in an elastic job.
  template <Element T>
  void set(const std::string& name, const Array<T>& value, int local, std::source_location where = std::source_location::current()) {
    detail::at_line("set", where, [&] { engine().set(name, value.any(), local, where); });
  }
  // The same for a variable of one element: repl.set("learning_rate", 0.01). The number is converted to its type. Throws
  // BuildError too if it does not fit: floating types round, and an integer takes whole numbers within its bounds.
  void set(const std::string& name, Number value, std::source_location where = std::source_location::current()) {
    detail::at_line("set", where, [&] { engine().set(name, detail::array_of(value, engine().declaration(name)), {}, where); });
  }

 private:
  template <class InputFn, class StepFn>
  auto replicate_dealt(InputFn& input_fn, StepFn step_fn, ReplicateOptions options, Location where) {
    if (deployment().regime == Regime::asynchronous)
      throw BuildError{
          "input_fn takes a rp::HostContext, so its elements are dealt to replicas in turn: with --regime async replicas take no turns; "
          "let it take a rp::InputContext and give the elements of one replica, or run with --regime sync"};
    const auto dealt = [engine = &engine(), input_fn = std::make_shared<InputFn>(std::move(input_fn))] {
      const int first = engine->first_replica(), end = engine->end_replica();
      return data::deal((*input_fn)(HostContext{engine->process(), engine->processes(), first, end, engine->input_context(first)}),
                        end - first);
    };
    using Hands = decltype(dealt());
    return replicate_range<typename Hands::value_type>(
        [engine = &engine(), dealt] {
          // Filled when the first range is asked for: a replay asks for none.
          return [engine, dealt, hands = Hands{}](const InputContext& context) mutable {
            if (hands.empty()) hands = dealt();
            return std::move(hands[static_cast<std::size_t>(context.replica() - engine->first_replica())]);
          };
        },
        std::move(step_fn), options, where, true);
  }
  // `begin()` returns a function that returns the range of one of this host's replicas.
  template <class Range, class Begin, class StepFn>
  auto replicate_range(Begin begin, StepFn step_fn, ReplicateOptions options, Location where, bool per_host) {
    using Types = detail::InputTypes<data::InputValue<Range>>;
    if constexpr (Types::template require_step<StepFn, ReplicaContext>()) {
      using Result = decltype(Types::call(std::declval<StepFn&>(), std::declval<ReplicaContext&>(), std::declval<const std::vector<AnyTensor>&>()));
      using Plain = std::remove_cvref_t<Result>;
      if constexpr (detail::require_results<Plain>()) {
        const int ordinal = engine().next_ordinal(options.checkpointed);
        detail::Trace trace = [step_fn = std::move(step_fn), where](ReplicaContext& context, const std::vector<AnyTensor>& x) mutable {
          Graph& graph = context.graph();
          try {
            if constexpr (std::is_void_v<Plain>) Types::call(step_fn, context, x);
            else detail::add_results(graph, detail::StepResult<Plain>::tensors(Types::call(step_fn, context, x)));
          } catch (const std::exception&) {
            detail::rethrow_from_step(context.id(), where);
          }
          graph.set_complete();
        };
        return make_step<Plain>(ordinal, options, make_inputs<Range>(std::move(begin), ordinal, where, per_host), std::move(trace));
      }
    }
  }
  template <class Range, class Begin>
  detail::MakeInputs make_inputs(Begin begin, int ordinal, Location where, bool per_host) {
    return detail::make_inputs(engine(), ordinal, detail::InputTypes<data::InputValue<Range>>::dtypes(), where, per_host, [begin = std::move(begin)] {
      return [range_of = std::make_shared<decltype(begin())>(begin())](const InputContext& context, const detail::ElementPlace& place) -> std::unique_ptr<detail::InputSource> {
        return std::make_unique<detail::RangeSource<Range>>((*range_of)(context), place);
      };
    });
  }
  template <class Result>
  auto make_step(int ordinal, ReplicateOptions options, detail::MakeInputs inputs, detail::Trace trace) {
    auto driver = engine().drive(ordinal, options.checkpointed, std::move(inputs), std::move(trace));
    return wrap(std::move(driver), options.checkpointed, std::type_identity<typename detail::StepResult<Result>::Arrays>{});
  }
  template <class... A>
  Step<A...> wrap(std::unique_ptr<detail::StepDriver> driver, bool checkpointed, std::type_identity<std::tuple<A...>>) const {
    return Step<A...>{engine_, std::move(driver), checkpointed, replicas()};
  }

  detail::Engine& engine() const {
    if (!engine_) detail::refuse_moved_replicator();
    return *engine_;
  }

  std::shared_ptr<detail::Engine> engine_;  // steps share it; null: moved from
};

}  // namespace replicator
