// SPDX-License-Identifier: Apache-2.0
// A kernel that wraps another one and looks like it.
#pragma once

#include <memory>
#include <utility>

#include <replicator/graph/kernel.hpp>

namespace replicator::test {

using namespace replicator::detail;

class Wrapped : public Executable {
 public:
  const Executable& inner() const { return *inner_; }

 protected:
  explicit Wrapped(std::unique_ptr<Executable> inner) : inner_{std::move(inner)} {
    input_layouts = inner_->input_layouts;
    output_layouts = inner_->output_layouts;
    in_place = inner_->in_place;
    scratch_bytes = inner_->scratch_bytes;
  }

 private:
  std::unique_ptr<Executable> inner_;
};

}  // namespace replicator::test
