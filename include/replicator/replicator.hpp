// SPDX-License-Identifier: Apache-2.0
// The public face: includes all that a step function and its program need. Namespace rp = replicator.
#pragma once

#include <replicator/version.hpp>

#include <replicator/data/batch.hpp>
#include <replicator/data/deal.hpp>
#include <replicator/data/files/cifar.hpp>
#include <replicator/data/files/csv.hpp>
#include <replicator/data/files/example.hpp>
#include <replicator/data/files/idx.hpp>
#include <replicator/data/files/image_folder.hpp>
#include <replicator/data/files/npy.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/data/files/tar.hpp>
#include <replicator/data/files/text.hpp>
#include <replicator/data/files/tfrecord.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/data/index.hpp>
#include <replicator/data/pictures/decode_images.hpp>
#include <replicator/data/prefetch.hpp>
#include <replicator/data/take.hpp>
#include <replicator/data/transform.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/io/dlpack.hpp>
#include <replicator/io/safetensors.hpp>
#include <replicator/io/tensorboard.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>
#include <replicator/replicate/check_gradients.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/replicate/report_on_signal.hpp>
#include <replicator/replicate/stop_on_signal.hpp>
#include <replicator/replicate/summary.hpp>
#include <replicator/replicate/train_loop.hpp>
#include <replicator/replicate/weights.hpp>
#include <replicator/resolve/all_to_all.hpp>
#include <replicator/resolve/collective_calls.hpp>
#include <replicator/resolve/map_over_replicas.hpp>
#include <replicator/resolve/nests.hpp>
#include <replicator/resolve/variable_functions.hpp>

// Optional parts. The folder of a part is on the include path only if this build has it. The kernels, transports,
// readers and the engine are compiled here, unless the program links a library that holds them (the CMake target
// replicator::compiled).
#if __has_include(<replicator/with/jpeg.hpp>)
#include <replicator/data/pictures/jpeg.hpp>
#endif
#if __has_include(<replicator/with/compiled.hpp>)
#include <replicator/with/compiled.hpp>
#else
#include <replicator/assembly/everything.hpp>
#endif
