// SPDX-License-Identifier: Apache-2.0
// That a GPU of this process hangs: no call that would wait for it may be made any more, and most of those that give something back do.
#pragma once

#include <atomic>

namespace replicator::detail::cuda {

inline std::atomic<bool> a_gpu_hangs{false};

}  // namespace replicator::detail::cuda
