// SPDX-License-Identifier: Apache-2.0
// Instantiates what programs call besides their steps: flags, training loops, weights, TensorBoard files.
#pragma once

#include <replicator/io/event_file.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/deployment_flags.hpp>
#include <replicator/replicate/parse_devices.hpp>
#include <replicator/replicate/report_signal.hpp>
#include <replicator/replicate/run_training.hpp>
#include <replicator/replicate/variable_table.hpp>
#include <replicator/replicate/weights_file.hpp>

namespace replicator {

REPLICATOR_TEMPLATE Deployment detail::take_flags<Deployment>(std::span<const char* const>);
REPLICATOR_TEMPLATE Deployment detail::take_only_flags<Deployment>(std::span<const char* const>);
REPLICATOR_TEMPLATE std::string detail::help_of_flags<Deployment>();
REPLICATOR_TEMPLATE std::vector<DeviceName> parse_devices<>(std::string_view);
REPLICATOR_TEMPLATE io::TensorBoardWriter::TensorBoardWriter(const std::string&, io::TensorBoardOptions);
REPLICATOR_TEMPLATE const std::string& io::TensorBoardWriter::path<>() const;
REPLICATOR_TEMPLATE void io::TensorBoardWriter::scalar<>(std::string_view, std::int64_t, double);
REPLICATOR_TEMPLATE void io::TensorBoardWriter::image<>(std::string_view, std::int64_t, const Array<std::uint8_t>&);
REPLICATOR_TEMPLATE void io::TensorBoardWriter::histogram<>(std::string_view, std::int64_t, std::span<const float>, int);
REPLICATOR_TEMPLATE int end_training<>(Replicator&, std::int64_t, std::int64_t, const std::string&);
REPLICATOR_TEMPLATE void TrainLoop::check<>();
REPLICATOR_TEMPLATE io::TensorBoardWriter* TrainLoop::tensorboard<>();
REPLICATOR_TEMPLATE void TrainLoop::begin<>(std::int64_t);
REPLICATOR_TEMPLATE bool TrainLoop::after_step<>(std::int64_t, const std::vector<double>&, bool);
REPLICATOR_TEMPLATE int TrainLoop::end<>(std::int64_t, bool);
REPLICATOR_TEMPLATE void load_weights<>(Replicator&, const std::string&, const LoadOptions&, std::source_location);
REPLICATOR_TEMPLATE void save_weights<>(const Replicator&, const std::string&, const SaveOptions&);
REPLICATOR_TEMPLATE std::string summary<>(const Replicator&);
REPLICATOR_TEMPLATE void report_on_signal<>(int);

}  // namespace replicator
