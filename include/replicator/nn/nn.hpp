// SPDX-License-Identifier: Apache-2.0
// All layers, initialisers, optimizers and learning rates.
#pragma once

#include <replicator/nn/accumulate.hpp>
#include <replicator/nn/adam.hpp>
#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/clip.hpp>
#include <replicator/nn/conditional_batch_norm.hpp>
#include <replicator/nn/conv2d.hpp>
#include <replicator/nn/conv_transpose2d.hpp>
#include <replicator/nn/cross_replica_moments.hpp>
#include <replicator/nn/embedding.hpp>
#include <replicator/nn/group_norm.hpp>
#include <replicator/nn/initialisers.hpp>
#include <replicator/nn/lamb.hpp>
#include <replicator/nn/lars.hpp>
#include <replicator/nn/layer_norm.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/nn/low_rank.hpp>
#include <replicator/nn/moving_average.hpp>
#include <replicator/nn/optimizer.hpp>
#include <replicator/nn/rate.hpp>
#include <replicator/nn/rmsprop.hpp>
#include <replicator/nn/sharded.hpp>
#include <replicator/nn/sgd.hpp>
#include <replicator/nn/spectral_norm.hpp>
#include <replicator/nn/target.hpp>
