// SPDX-License-Identifier: Apache-2.0
// The code of tensorboard.hpp: an event file.
// Source: event.proto, summary.proto and histogram.proto of
// github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/io/file.hpp>
#include <replicator/io/pictures/png.hpp>
#include <replicator/io/protobuf/protobuf_writer.hpp>
#include <replicator/io/record.hpp>
#include <replicator/io/tensorboard.hpp>

namespace replicator::io {

namespace detail {

// The message tensorboard.HistogramProto: intervals of equal width from the least to the greatest value, closed above.
inline ProtobufMessage histogram_message(std::span<const float> values, int buckets) {
  double least = INFINITY, greatest = -INFINITY, sum = 0, squares = 0, count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
    sum += value;
    squares += value * value;
    count += 1;
  }
  if (count == 0) least = greatest = 0;
  const int used = count == 0          ? 0
                   : least == greatest ? 1
                                       : buckets;
  const double width = used > 0 ? (greatest - least) / used : 0;
  std::vector<double> limits, counts(static_cast<std::size_t>(used));
  for (int i = 1; i <= used; ++i) limits.push_back(i == used ? greatest : least + width * i);
  for (const double value : values)
    if (std::isfinite(value)) counts[static_cast<std::size_t>(std::lower_bound(limits.begin(), limits.end(), value) - limits.begin())] += 1;
  ProtobufMessage message;
  const double figures[] = {least, greatest, count, sum, squares};
  for (int i = 0; i < 5; ++i) message.float64(i + 1, figures[i]);
  message.float64s(6, limits);
  message.float64s(7, counts);
  return message;
}

inline std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "localhost";
}

inline double seconds_since_1970() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

class EventFile {
 public:
  EventFile(const std::string& folder, TensorBoardOptions options)
      : clock_{options.clock ? std::move(options.clock) : &seconds_since_1970}, path_{new_path(folder)}, file_{path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, "create"} {
    ProtobufMessage version;
    version.float64(1, clock_());
    version.string(3, "brain.Event:2");
    append(version);
    if (options.first_step <= 0) return;
    ProtobufMessage start, restart = event(options.first_step);
    start.int64(1, 1);  // SessionLog.START
    restart.message(7, start);
    append(restart);
  }

  const std::string& path() const { return path_; }

  // Appends a value of a summary.
  void summary(std::int64_t step, const ProtobufMessage& item) {
    ProtobufMessage values, message = event(step);
    values.message(1, item);
    message.message(5, values);
    append(message);
  }

 private:
  // TensorBoard reads the files with "tfevents" in their names, in the order of the names. Hence the seconds come
  // first, with all digits. The rest distinguishes writers of the same second.
  std::string new_path(const std::string& folder) const {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) throw DataError{folder + ": cannot make the folder: " + failed.message()};
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%010lld", static_cast<long long>(clock_()));
    const auto path = folder + "/events.out.tfevents." + seconds + "." + host_name() + "." + std::to_string(::getpid()) + ".";
    int number = 0;
    while (std::filesystem::exists(path + std::to_string(number), failed)) ++number;
    return path + std::to_string(number);
  }

  ProtobufMessage event(std::int64_t step) const {
    ProtobufMessage message;
    message.float64(1, clock_());
    message.int64(2, step);
    return message;
  }
  // Undoes a partial write, as on a full disk: TensorBoard could not read any record behind it.
  void append(const ProtobufMessage& message) {
    const auto record = framed_record(message.view());
    try {
      write_all(path_, file_.fd(), record);
    } catch (const DataError&) {
      (void)!::ftruncate(file_.fd(), size_);
      throw;
    }
    size_ += static_cast<off_t>(record.size());
  }

  std::function<double()> clock_;
  std::string path_;
  File file_;
  off_t size_ = 0;
};

}  // namespace detail

template <class>
TensorBoardWriter::TensorBoardWriter(const std::string& folder, TensorBoardOptions options) : file_{std::make_shared<detail::EventFile>(folder, std::move(options))} {}

template <class>
const std::string& TensorBoardWriter::path() const { return file_->path(); }

template <class>
void TensorBoardWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  detail::ProtobufMessage item;
  item.string(1, tag);
  item.float32(2, static_cast<float>(value));
  file_->summary(step, item);
}

template <class>
void TensorBoardWriter::image(std::string_view tag, std::int64_t step, const Array<std::uint8_t>& pixels) {
  const auto png = encode_png(pixels);
  detail::ProtobufMessage picture, item;
  picture.int64(1, pixels.shape()[0]);
  picture.int64(2, pixels.shape()[1]);
  picture.int64(3, pixels.shape().rank() == 3 ? pixels.shape()[2] : 1);
  picture.bytes(4, png);
  item.string(1, tag);
  item.message(4, picture);
  file_->summary(step, item);
}

template <class>
void TensorBoardWriter::histogram(std::string_view tag, std::int64_t step, std::span<const float> values, int buckets) {
  if (buckets < 1 || buckets > 1 << 20)
    throw BuildError{"a histogram of " + std::to_string(buckets) + " intervals was asked for: take 1 to " + std::to_string(1 << 20)};
  detail::ProtobufMessage item;
  item.string(1, tag);
  item.message(5, detail::histogram_message(values, buckets));
  file_->summary(step, item);
}

}  // namespace replicator::io
