// SPDX-License-Identifier: Apache-2.0
// Includes the code of all readers of data: what the public headers of data/ and io/dlpack.hpp only declare, so that files
// of programs that link replicator::compiled do not compile it.
#pragma once

#include <replicator/data/files/cifar_files.hpp>
#include <replicator/data/files/csv_file.hpp>
#include <replicator/data/files/idx_header.hpp>
#include <replicator/data/files/npy_header.hpp>
#include <replicator/data/files/parse_example.hpp>
#include <replicator/data/files/record_files.hpp>
#include <replicator/data/files/scan_image_folder.hpp>
#include <replicator/data/files/tar_samples.hpp>
#include <replicator/data/files/token_windows.hpp>
#include <replicator/data/fill_alias_table.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/data/pictures/image_decoder.hpp>
#include <replicator/data/pictures/picture_decoder.hpp>
#include <replicator/data/prefetch_thread.hpp>
#include <replicator/data/worker_threads.hpp>
#include <replicator/io/dlpack_exchange.hpp>

// The decoders of pictures register themselves.
#if __has_include(<replicator/with/jpeg.hpp>)
#include <replicator/with/jpeg.hpp>
#endif
#if __has_include(<replicator/with/png.hpp>)
#include <replicator/with/png.hpp>
#endif
