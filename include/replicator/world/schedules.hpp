// SPDX-License-Identifier: Apache-2.0
// Own collective algorithms: the names with which a program builds a Schedule, proves it, simulates it, and runs it between
// the threads of one process. Namespace `rp::schedules`.
#pragma once

#include <replicator/collectives/algorithms/direct.hpp>
#include <replicator/collectives/algorithms/hierarchical.hpp>
#include <replicator/collectives/check/check.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/collectives/schedule.hpp>
#include <replicator/collectives/simulate/run_simulation.hpp>
#include <replicator/collectives/simulate/simulate.hpp>
#include <replicator/collectives/topology.hpp>
#include <replicator/transport/in_process.hpp>

namespace replicator::schedules {

// A schedule: for each rank, channels of instructions on operands. collectives/schedule.hpp documents the fields.
using detail::collectives::Action;
using detail::collectives::Buffer;
using detail::collectives::Channel;
using detail::collectives::Instruction;
using detail::collectives::Operand;
using detail::collectives::ReplicaBlocks;
using detail::collectives::Schedule;

// The collective that a schedule performs: its kind, number of elements and element type.
using detail::collectives::CollectiveSpec;
using detail::collectives::Kind;

// Prove a schedule for every number of elements. `check` throws BuildError with the first fault. `find_fault` returns the
// fault as text, or an empty string.
using detail::collectives::check;
using detail::collectives::find_fault;

// Predict the time of a schedule on a described topology.
using detail::collectives::Link;
using detail::collectives::simulate;
using detail::collectives::Simulation;
using detail::collectives::SimulationOptions;
using detail::collectives::Topology;

// All-reduces of the library, for comparison: one for few bytes, one for a hierarchy of hosts.
using detail::collectives::direct;
using detail::collectives::hierarchical;

// Run a schedule between threads: each thread makes a communicator from its InProcess endpoint, and prepares the schedule
// once.
using detail::collectives::Collective;
using detail::collectives::Communicator;
using detail::collectives::make_communicator;
using detail::transport::Clock;
using detail::transport::InProcess;
using detail::transport::InProcessGroup;

}  // namespace replicator::schedules
