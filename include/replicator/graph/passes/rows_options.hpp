// SPDX-License-Identifier: Apache-2.0
// RowsOptions: what the devices allow the pass `fuse_rows` to do.
#pragma once

namespace replicator::detail::passes {

struct RowsOptions {
  bool wanted = false;       // the devices have a kernel of Rows
  bool column_sums = false;  // its nodes may reduce columns, too
};

}  // namespace replicator::detail::passes
