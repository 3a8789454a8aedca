// SPDX-License-Identifier: Apache-2.0
// Arrays and DLPack tensors for dlpack_numpy.py, which loads this library.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <replicator/io/dlpack.hpp>
#include <replicator/io/dlpack_exchange.hpp>

using replicator::AnyArray;

namespace {
std::atomic<int> alive{0};  // memory that was given away and not given back

void put(char* to, std::size_t room, const std::string& text) {
  const auto size = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), size);
  to[size] = 0;
}

// Elements 0, 1, ... 5 (of bool: 0, 1, 1, ...) of the type with this number.
AnyArray counted(int dtype, int rank) {
  const replicator::Shape shapes[] = {{}, {6}, {2, 3}, {1, 3, 2}};
  AnyArray array{{static_cast<replicator::DType>(dtype), shapes[rank]}};
  replicator::visit_dtype(array.dtype(), [&]<class T>() {
    for (int i = 0; T & value : array.as<T>()) value = static_cast<T>(i++);
  });
  ++alive;
  const std::shared_ptr<AnyArray> owner{new AnyArray{std::move(array)}, [](AnyArray* each) { --alive, delete each; }};
  return AnyArray::borrow(owner->type(), owner->data(), owner);
}
}  // namespace

extern "C" {

int dlpack_alive() { return alive; }

// A DLManagedTensorVersioned, or a DLManagedTensor, and where its elements lie.
void* dlpack_give(int dtype, int rank, int versioned, void** elements) {
  AnyArray array = counted(dtype, rank);
  *elements = array.data();
  if (versioned) return replicator::to_dlpack(std::move(array)).release();
  return replicator::to_dlpack_unversioned(std::move(array)).release();
}

// An array that has taken the tensor over; null, with the error as text, where it could not.
AnyArray* dlpack_take(void* managed, int versioned, char* text, std::size_t room) {
  try {
    auto array = versioned ? replicator::from_dlpack(static_cast<replicator::dlpack::ManagedVersioned*>(managed))
                           : replicator::from_dlpack(static_cast<replicator::dlpack::Managed*>(managed));
    put(text, room, array.type().text());
    return new AnyArray{std::move(array)};
  } catch (const std::exception& error) {
    put(text, room, error.what());
    return nullptr;
  }
}
void* dlpack_elements(AnyArray* array) { return array->data(); }
std::size_t dlpack_bytes(const AnyArray* array) { return array->size_bytes(); }
void dlpack_drop(AnyArray* array) { delete array; }

}  // extern "C"
