// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::onednn; replicator.hpp looks for it.
#pragma once

#include <replicator/cpu/onednn/onednn_convolution.hpp>
#include <replicator/cpu/onednn/onednn_copy.hpp>
#include <replicator/cpu/onednn/onednn_matmul.hpp>
