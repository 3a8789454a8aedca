// SPDX-License-Identifier: Apache-2.0
// Instantiates reading and writing safetensors files. Weights, checkpoints and recordings are such files.
#pragma once

#include <replicator/io/safetensors_file.hpp>

namespace replicator::io {

REPLICATOR_TEMPLATE void write_safetensors<>(const std::string&, std::vector<NamedTensor>, const std::map<std::string, std::string>&);
REPLICATOR_TEMPLATE void write_safetensors<>(const std::string&, const std::map<std::string, AnyArray>&, const std::map<std::string, std::string>&);
REPLICATOR_TEMPLATE std::vector<std::byte> safetensors_bytes<>(const std::string&, std::vector<NamedTensor>, const std::map<std::string, std::string>&);
REPLICATOR_TEMPLATE Safetensors read_safetensors<>(const std::string&);
REPLICATOR_TEMPLATE Safetensors read_safetensors<>(const std::string&, std::span<const std::byte>);

}  // namespace replicator::io
