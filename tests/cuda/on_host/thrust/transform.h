// SPDX-License-Identifier: Apache-2.0
// The part of Thrust's transform that the kernels use, on the host: work of the stream, or an error chosen by the test.
#pragma once

#include <algorithm>
#include <utility>

#include <thrust/execution_policy.h>
#include <thrust/system_error.h>

namespace on_host {
inline cudaError_t next_transform_gives = cudaSuccess;
}

namespace thrust {

namespace detail {
template <class... Iterators>
void transform(const cuda::OnStream& policy, Iterators... iterators) {
  if (const auto error = std::exchange(::on_host::next_transform_gives, cudaSuccess))
    throw system_error{static_cast<int>(error), std::generic_category(), "transform: failed inside CUB"};
  ::on_host::give(policy.stream, [=] { std::transform(iterators...); });
}
}  // namespace detail

// The result may lie over the input.
template <class In, class Out, class F>
void transform(const cuda::OnStream& policy, In first, In last, Out result, F f) {
  detail::transform(policy, first, last, result, f);
}
template <class In, class Other, class Out, class F>
void transform(const cuda::OnStream& policy, In first, In last, Other second, Out result, F f) {
  detail::transform(policy, first, last, second, result, f);
}

}  // namespace thrust
