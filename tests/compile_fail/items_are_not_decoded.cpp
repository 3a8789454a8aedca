// SPDX-License-Identifier: Apache-2.0
// EXPECT: these items are not decoded yet: put decode_images() before this stage
#include <replicator/data/batch.hpp>
#include <replicator/data/files/tar.hpp>

int main() { auto input = replicator::data::tar_pictures("shards") | replicator::data::batch(2); }
