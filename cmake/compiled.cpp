// SPDX-License-Identifier: Apache-2.0
// The one file of replicator::compiled.
#include <replicator/everything.hpp>
