// SPDX-License-Identifier: Apache-2.0
// Of replicator::compiled: oneDNN's kernels, where this build has them. They register themselves.
#if __has_include(<replicator/with/onednn.hpp>)
#include <replicator/with/onednn.hpp>
#endif
