// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::jpeg; replicator.hpp and assembly/readers.hpp look for it.
#pragma once

#include <replicator/data/pictures/jpeg_decoder.hpp>
