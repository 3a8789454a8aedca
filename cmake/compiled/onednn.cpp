// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: oneDNN's kernels, if this build has them. They register themselves.
#if __has_include(<replicator/with/onednn.hpp>)
#include <replicator/with/onednn.hpp>
#endif
