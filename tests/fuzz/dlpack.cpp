// SPDX-License-Identifier: Apache-2.0
// Fuzzes tensors of other frameworks. Their description of the memory must be trusted, so no input may point outside of
// it. All other fields may be wrong.
// covers: io/dlpack.hpp io/dlpack_exchange.hpp
#include <array>
#include <memory>
#include <replicator/io/dlpack.hpp>
#include <replicator/io/dlpack_exchange.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

namespace {

constexpr std::size_t memory_bytes = 4096;

struct Lent {
  dlpack::ManagedVersioned managed;
  std::array<std::int64_t, 9> shape{}, strides{};
  std::unique_ptr<std::byte[]> memory = std::make_unique<std::byte[]>(memory_bytes);
  int* deleted = nullptr;
};

// Whether all elements lie in the memory, or there are none.
bool in_memory(const dlpack::Tensor& tensor, const Lent& lent) {
  __int128 low = tensor.byte_offset, high = tensor.byte_offset, dense = 1;
  const __int128 size = tensor.dtype.bits / 8;
  for (int axis = tensor.rank - 1; axis >= 0; --axis) {
    const auto k = static_cast<std::size_t>(axis);
    if (lent.shape[k] == 0) return true;
    if (lent.shape[k] > 1 && (lent.shape[k] > 1 << 20 || std::abs(lent.strides[k] / 2) > 1 << 20)) return false;
    if (lent.shape[k] == 1) continue;
    const __int128 step = (tensor.strides ? __int128{lent.strides[k]} : dense) * size * (lent.shape[k] - 1);
    (step < 0 ? low : high) += step;
    dense *= lent.shape[k];
    if (dense > 1 << 20 || low < 0 || high > static_cast<__int128>(memory_bytes)) return false;
  }
  return high + size <= static_cast<__int128>(memory_bytes);
}

}  // namespace

void one(Bytes input) {
  Input in{input};
  auto lent = std::make_unique<Lent>();
  int deleted = 0;
  lent->deleted = &deleted;
  auto& m = lent->managed;
  m.version.major = in.number<std::uint8_t>() % 4;
  m.flags = in.number<std::uint8_t>();
  auto& tensor = m.tensor;
  tensor.device.type = in.number<std::int8_t>();
  tensor.rank = in.number<std::int8_t>();
  tensor.dtype = {in.number<std::uint8_t>(), in.number<std::uint8_t>(), in.number<std::uint16_t>()};
  const auto missing = in.number<std::uint8_t>();
  tensor.data = missing & 1 ? nullptr : lent->memory.get();
  tensor.shape = missing & 2 ? nullptr : lent->shape.data();
  tensor.strides = missing & 4 ? nullptr : lent->strides.data();
  tensor.byte_offset = missing & 8 ? in.number<std::uint64_t>() : in.number<std::uint8_t>();
  for (auto& extent : lent->shape) extent = missing & 16 ? in.number<std::int64_t>() : in.number<std::int8_t>();
  for (auto& stride : lent->strides) stride = missing & 16 ? in.number<std::int64_t>() : in.number<std::int8_t>();
  bool negative = false;
  for (int axis = 0; axis < tensor.rank && axis < 9; ++axis) negative = negative || lent->shape[static_cast<std::size_t>(axis)] < 0;
  const bool refused = tensor.rank < 0 || tensor.rank > 8 || negative || (!tensor.shape && tensor.rank > 0) || !tensor.data;
  if (!refused && !in_memory(tensor, *lent)) return;
  m.context = lent.get();
  m.deleter = [](dlpack::ManagedVersioned* managed) {
    const std::unique_ptr<Lent> owner{static_cast<Lent*>(managed->context)};
    ++*owner->deleted;
  };
  documented<BuildError>("from_dlpack", [&] {
    const auto array = from_dlpack(&lent.release()->managed);
    std::byte sum{};
    for (const std::byte b : array.bytes()) sum ^= b;
    static_cast<void>(sum);
    const AnyArray copy = array;
  });
  require(deleted == 1, "a tensor that was deleted " + std::to_string(deleted) + " times");
}

std::vector<std::string> seeds() {
  using std::string;
  return {string{"\1\0\1\2\2\x20\1\0\0\0\2\3\0\0\0\0\0\0\0\3\1", 21}, string{"\1\1\1\2\2\x20\1\0\0\0\2\3\0\0\0\0\0\0\0\1\2", 21},
          string{"\1\0\1\0\1\x08\1\0\4\0", 10}, string{"\1\0\2\1\0\x40\1\0\0\0\1", 11}};
}

}  // namespace replicator::fuzz
