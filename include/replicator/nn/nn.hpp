// SPDX-License-Identifier: Apache-2.0
// All layers, initialisers, optimizers and learning rates.
#pragma once

#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/conditional_batch_norm.hpp>
#include <replicator/nn/conv1d.hpp>
#include <replicator/nn/conv2d.hpp>
#include <replicator/nn/conv_transpose2d.hpp>
#include <replicator/nn/cross_replica_moments.hpp>
#include <replicator/nn/embedding.hpp>
#include <replicator/nn/group_norm.hpp>
#include <replicator/nn/initialisers.hpp>
#include <replicator/nn/layer_norm.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/nn/optimizers/accumulate.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/clip.hpp>
#include <replicator/nn/optimizers/lamb.hpp>
#include <replicator/nn/optimizers/lars.hpp>
#include <replicator/nn/optimizers/local.hpp>
#include <replicator/nn/optimizers/low_rank.hpp>
#include <replicator/nn/optimizers/moving_average.hpp>
#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/rate.hpp>
#include <replicator/nn/optimizers/rmsprop.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/nn/optimizers/sharded.hpp>
#include <replicator/nn/optimizers/target.hpp>
#include <replicator/nn/recurrent.hpp>
#include <replicator/nn/refused_types.hpp>
#include <replicator/nn/rms_norm.hpp>
#include <replicator/nn/spectral_norm.hpp>
