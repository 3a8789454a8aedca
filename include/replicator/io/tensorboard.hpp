// SPDX-License-Identifier: Apache-2.0
// Writes event files for TensorBoard; show them with `tensorboard --logdir runs`.
// <replicator/replicator.hpp>, or event_file.hpp, brings the code.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <replicator/core/array.hpp>

namespace replicator::io {

struct TensorBoardOptions {
  // For a resumed run: TensorBoard drops what earlier files of the folder have for this step and later. 0 drops
  // nothing.
  std::int64_t first_step = 0;
  // Returns seconds since 1970. Empty: the system's clock.
  std::function<double()> clock = {};
};

namespace detail {
class EventFile;
}

// Writes one event file in a folder. TensorBoard shows all files of a folder as one run, and the folders below a folder
// as several runs. For one thread at a time. In a job of several processes, only process 0 should have a writer.
//
// Every call writes one record to the system at once. A running TensorBoard sees it at its next look, and a crash of
// the program can only lose the record being written. Tags with a slash are grouped by the part before it:
// "loss/train".
class TensorBoardWriter {
 public:
  // Creates the folder if needed. Throws DataError if the file cannot be created.
  template <class = void>
  explicit TensorBoardWriter(const std::string& folder, TensorBoardOptions options = {});
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  template <class = void>
  const std::string& path() const;

  // Appends one number. Throws DataError, as all functions below, if the file cannot be written.
  template <class = void>
  void scalar(std::string_view tag, std::int64_t step, double value);

  // Appends a picture. `pixels` is [height, width] or [height, width, 1] (grey), or [height, width, 3] (RGB).
  // Throws BuildError for other shapes.
  template <class = void>
  void image(std::string_view tag, std::int64_t step, const Array<std::uint8_t>& pixels);

  // Counts the values in `buckets` intervals of equal width between the least and the greatest; skips values that are
  // not finite. For an array, pass array.any().as<float>().
  // Throws BuildError unless 0 < buckets <= 2^20.
  template <class = void>
  void histogram(std::string_view tag, std::int64_t step, std::span<const float> values, int buckets = 30);

 private:
  std::shared_ptr<detail::EventFile> file_;
};

}  // namespace replicator::io
