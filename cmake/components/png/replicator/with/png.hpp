// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::png; assembly/readers.hpp looks for it.
#pragma once

#include <replicator/data/pictures/png.hpp>
