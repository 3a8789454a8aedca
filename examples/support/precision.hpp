// SPDX-License-Identifier: Apache-2.0
// --precision: what products are computed in while a step function is traced.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include <replicator/replicator.hpp>

namespace example {

// `precision` holds the default, and lives as long as the app.
inline void add_precision_flag(CLI::App& app, std::string& precision) {
  app.add_option("--precision", precision,
                 "what convolutions and matrix products are computed in; with bfloat16 weights, statistics, losses and optimizers stay float32")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
}

// As long as what it returns lives.
inline auto compute_in(replicator::ReplicaContext& replica, const std::string& precision) {
  return replicator::mixed_precision(replica, precision == "bfloat16" ? replicator::DType::bfloat16 : replicator::DType::float32);
}

}  // namespace example
