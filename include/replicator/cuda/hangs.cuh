// SPDX-License-Identifier: Apache-2.0
// A flag that is set when a GPU of this process hangs. From then on no call may be made that waits for the GPU. Most calls that
// release something do wait for it.
#pragma once

#include <atomic>

namespace replicator::detail::cuda {

inline std::atomic<bool> a_gpu_hangs{false};

}  // namespace replicator::detail::cuda
