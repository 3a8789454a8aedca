// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: readers of data. The decoders of pictures, as far as this build has them, register
// themselves.
#define REPLICATOR_TEMPLATE template
#include "data.hpp"
