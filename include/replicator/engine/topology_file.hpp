// SPDX-License-Identifier: Apache-2.0
// The file format of a topology. The file is measured and written once, or written by hand, and read by later runs.
//
//   {"format": "replicator topology 1",
//    "dimensions": [{"size": 4, "microseconds": 0.5, "bytes_per_microsecond": 50000},    devices of a process
//                   {"size": 3, "microseconds": 20, "bytes_per_microsecond": 1200}],     processes
//    "reduced_bytes_per_microsecond": 9000}
//
// Dimensions of size 1 are left out. See docs/hosts.md.
#pragma once

#include <cstddef>
#include <replicator/collectives/topology.hpp>
#include <replicator/io/file.hpp>
#include <replicator/io/json/json_reader.hpp>
#include <replicator/io/json/json_writer.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::detail {

inline constexpr std::string_view topology_format = "replicator topology 1";

// Throws DataError "<path>: byte 17: topology: ..." for any other text.
class TopologyReader : io::detail::JsonCursor {
 public:
  TopologyReader(std::string_view text, const std::string& path) : JsonCursor{text, 0, path, "topology"} {}

  collectives::Topology read() {
    collectives::Topology topology;
    int seen = 0;
    object([&](const std::string& key) {
      once(seen, key, {"format", "dimensions", "reduced_bytes_per_microsecond"}, "a topology");
      if (key == "format") format();
      if (key == "dimensions") array([&] { topology.dimensions.push_back(dimension()); });
      if (key == "reduced_bytes_per_microsecond") topology.reduced_bytes_per_microsecond = positive(key);
    });
    if (seen != 7) fail("a topology needs format, dimensions and reduced_bytes_per_microsecond");
    if (topology.dimensions.empty()) fail("there are no dimensions");
    finish();
    try {
      topology.require();
    } catch (const BuildError& error) {
      fail(error.what());
    }
    return topology;
  }

 private:
  void once(int& seen, const std::string& key, const std::vector<std::string_view>& keys, const char* of) const {
    for (std::size_t k = 0; k < keys.size(); ++k) {
      if (key != keys[k]) continue;
      if (seen & (1 << k)) fail("\"" + key + "\" appears twice");
      seen |= 1 << k;
      return;
    }
    std::string names;
    for (const auto& name : keys) names += (names.empty() ? "" : ", ") + std::string{name};
    fail("\"" + key + "\" is no member of " + of + ", whose members are " + names);
  }
  void format() {
    const auto found = string();
    if (found != topology_format) fail("the format is \"" + found + "\", not \"" + std::string{topology_format} + "\"");
  }
  double positive(const std::string& key) {
    constexpr double most = 1e300;  // so that a value rounded to 10 digits is finite too
    const double value = number();
    if (!(value > 0) || value > most) fail("\"" + key + "\" must be more than 0, and at most 1e300");
    return value;
  }
  collectives::Topology::Dimension dimension() {
    collectives::Topology::Dimension result;
    int seen = 0;
    object([&](const std::string& key) {
      once(seen, key, {"size", "microseconds", "bytes_per_microsecond"}, "a dimension");
      if (key == "size") {
        const auto size = integer();
        if (size < 1 || size > collectives::Topology::most_ranks) fail("the size of a dimension is " + std::to_string(size) + ": it must be from 1 to " + std::to_string(collectives::Topology::most_ranks));
        result.size = static_cast<int>(size);
      }
      if (key == "microseconds") result.link.microseconds = positive(key);
      if (key == "bytes_per_microsecond") result.link.bytes_per_microsecond = positive(key);
    });
    if (seen != 7) fail("a dimension needs size, microseconds and bytes_per_microsecond");
    return result;
  }
};

// `path` is used in errors. Throws DataError with the file and the position.
inline collectives::Topology parse_topology(std::string_view text, const std::string& path) { return detail::TopologyReader{text, path}.read(); }

// Writes figures with 10 digits. Reading the file again gives exactly the figures in it.
inline std::string text_of(const collectives::Topology& topology) {
  JsonWriter json;
  json.object([&] {
    json.member("format", topology_format);
    json.key("dimensions").array([&] {
      for (const auto& dimension : topology.dimensions) {
        json.new_line();
        json.object([&] {
          json.member("size", dimension.size);
          json.member("microseconds", dimension.link.microseconds);
          json.member("bytes_per_microsecond", dimension.link.bytes_per_microsecond);
        });
      }
    });
    json.new_line();
    json.member("reduced_bytes_per_microsecond", topology.reduced_bytes_per_microsecond);
  });
  return json.text() + "\n";
}

// Writes a temporary file and renames it. Throws DataError.
inline void write_topology(const std::string& path, std::string_view text) {
  io::FileReplacement file{path};
  file.write(std::as_bytes(std::span{text.data(), text.size()}));
  file.commit();
}

}  // namespace replicator::detail
