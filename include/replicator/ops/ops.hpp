// SPDX-License-Identifier: Apache-2.0
// All operations.
#pragma once

#include <replicator/ops/activation.hpp>
#include <replicator/ops/attention.hpp>
#include <replicator/ops/axis.hpp>
#include <replicator/ops/broadcast_to.hpp>
#include <replicator/ops/categorical_projection.hpp>
#include <replicator/ops/concat.hpp>
#include <replicator/ops/convolution.hpp>
#include <replicator/ops/convolution_transpose.hpp>
#include <replicator/ops/cumulative_sum.hpp>
#include <replicator/ops/divergence.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/fused_convolution.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/ops/hinge_loss.hpp>
#include <replicator/ops/index.hpp>
#include <replicator/ops/loss.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/mixed_precision.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/pooling.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/ops/recompute.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/ops/regression_loss.hpp>
#include <replicator/ops/reshape.hpp>
#include <replicator/ops/sampling.hpp>
#include <replicator/ops/sigmoid_cross_entropy.hpp>
#include <replicator/ops/slice.hpp>
#include <replicator/ops/stop_gradient.hpp>
#include <replicator/ops/top_k.hpp>
#include <replicator/ops/transpose.hpp>
#include <replicator/ops/upsample.hpp>
