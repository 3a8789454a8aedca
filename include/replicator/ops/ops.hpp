// SPDX-License-Identifier: Apache-2.0
// Includes all operations.
#pragma once

#include <replicator/ops/activation.hpp>
#include <replicator/ops/attention.hpp>
#include <replicator/ops/convolution.hpp>
#include <replicator/ops/convolution_transpose.hpp>
#include <replicator/ops/cumulative_sum.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/fusion/fused_convolution.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/ops/index.hpp>
#include <replicator/ops/losses/categorical_projection.hpp>
#include <replicator/ops/losses/divergence.hpp>
#include <replicator/ops/losses/hinge_loss.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/losses/regression_loss.hpp>
#include <replicator/ops/losses/sigmoid_cross_entropy.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/mixed_precision.hpp>
#include <replicator/ops/movement/axis.hpp>
#include <replicator/ops/movement/broadcast_to.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/pooling.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/ops/recompute.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/ops/sampling.hpp>
#include <replicator/ops/stop_gradient.hpp>
#include <replicator/ops/top_k.hpp>
#include <replicator/ops/upsample.hpp>
