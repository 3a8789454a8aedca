// SPDX-License-Identifier: Apache-2.0
// Instantiates the readers of data.
#pragma once

#include <replicator/assembly/readers.hpp>

namespace replicator::data {

REPLICATOR_TEMPLATE AliasTable::AliasTable(const std::vector<double>&);
REPLICATOR_TEMPLATE std::int64_t AliasTable::operator()(std::uint64_t, std::int64_t) const;
REPLICATOR_TEMPLATE double AliasTable::probability(std::int64_t) const;
REPLICATOR_TEMPLATE Index::Place Index::operator()(std::int64_t) const;
REPLICATOR_TEMPLATE std::int64_t Index::limit() const;
REPLICATOR_TEMPLATE Share Index::share() const;
REPLICATOR_TEMPLATE void Index::shuffle(std::optional<std::uint64_t>);
REPLICATOR_TEMPLATE void Index::sample(std::shared_ptr<const AliasTable>, std::optional<std::uint64_t>);
REPLICATOR_TEMPLATE void Index::shard(const Shard&);
REPLICATOR_TEMPLATE void Index::epochs(std::int64_t);
REPLICATOR_TEMPLATE void Index::take(std::int64_t);
REPLICATOR_TEMPLATE detail::SampleStage sample(const std::vector<double>&);
REPLICATOR_TEMPLATE detail::SampleStage sample(const std::vector<double>&, std::uint64_t);

REPLICATOR_TEMPLATE WorkerPool::WorkerPool(int);
REPLICATOR_TEMPLATE void WorkerPool::for_each(std::int64_t, const WorkerPool::Work&);
REPLICATOR_TEMPLATE std::shared_ptr<detail::PrefetchThread> detail::make_prefetch_thread(const detail::PrefetchStage&, std::function<std::unique_ptr<detail::Prefetch>()>);
REPLICATOR_TEMPLATE std::unique_ptr<detail::Prefetch> detail::take_oldest(detail::PrefetchThread&);
REPLICATOR_TEMPLATE void detail::stop(detail::PrefetchThread&);

REPLICATOR_TEMPLATE std::shared_ptr<const detail::PictureFiles> detail::scan_image_folder(const std::string&);
REPLICATOR_TEMPLATE std::shared_ptr<const detail::TarSamples> detail::scan_tar(const std::string&, std::vector<std::string>);
REPLICATOR_TEMPLATE std::int64_t detail::sample_count(const detail::TarSamples&);
REPLICATOR_TEMPLATE Array<std::uint8_t> detail::sample_part(const detail::TarSamples&, std::int64_t, std::size_t);
REPLICATOR_TEMPLATE TarPictures::TarPictures(const std::string&, const std::string&, const std::string&);
REPLICATOR_TEMPLATE TarPictures::Item TarPictures::operator()(std::int64_t) const;
REPLICATOR_TEMPLATE std::shared_ptr<detail::ImageDecoder> detail::make_image_decoder(const DecodeOptions&, int);
REPLICATOR_TEMPLATE void detail::decode_file(detail::ImageDecoder&, int, const std::string&, const detail::PictureKey&, float*);
REPLICATOR_TEMPLATE void detail::decode_bytes(detail::ImageDecoder&, int, const std::string&, std::span<const std::byte>, const detail::PictureKey&, float*);
REPLICATOR_TEMPLATE Array<std::uint8_t> read_image(const std::string&, std::int64_t);
#if __has_include(<replicator/with/jpeg.hpp>)
REPLICATOR_TEMPLATE std::vector<std::byte> encode_jpeg(const Array<std::uint8_t>&, int);
#endif

REPLICATOR_TEMPLATE TableSource<detail::CifarFiles> cifar10(const std::string&, const CifarOptions&);
REPLICATOR_TEMPLATE TableSource<detail::CifarFiles> cifar100(const std::string&, const CifarOptions&);
REPLICATOR_TEMPLATE std::tuple<Array<std::uint8_t>, Array<std::int32_t>> detail::CifarFiles::operator[](std::int64_t) const;
REPLICATOR_TEMPLATE TableSource<detail::RecordFiles> tfrecord(const std::string&);
REPLICATOR_TEMPLATE Array<std::uint8_t> detail::RecordFiles::operator[](std::int64_t) const;
REPLICATOR_TEMPLATE Example::Example(std::span<const std::byte>);
REPLICATOR_TEMPLATE Example::Kind Example::kind(const std::string&) const;
REPLICATOR_TEMPLATE Array<std::uint8_t> Example::bytes(const std::string&, std::size_t) const;
REPLICATOR_TEMPLATE Array<float> Example::floats(const std::string&) const;
REPLICATOR_TEMPLATE Array<std::int64_t> Example::int64s(const std::string&) const;
REPLICATOR_TEMPLATE Example parse_example(const Array<std::uint8_t>&);
REPLICATOR_TEMPLATE TableSource<detail::TokenWindows> token_windows(std::vector<std::int32_t>, const WindowOptions&);
REPLICATOR_TEMPLATE TableSource<detail::TokenWindows> detail::windows_of_files(const std::string&, const std::function<std::vector<std::int32_t>(std::string_view)>&,
                                                                               const WindowOptions&);
REPLICATOR_TEMPLATE std::tuple<Array<std::int32_t>, Array<std::int32_t>> detail::TokenWindows::operator[](std::int64_t) const;
REPLICATOR_TEMPLATE TableSource<detail::CsvRows<std::int32_t>> csv_labels(const std::string&, const CsvColumn&, const std::vector<std::string>&, const CsvOptions&);

REPLICATOR_TEMPLATE std::vector<float> detail::csv_numbers(const std::string&, const std::vector<CsvColumn>&, const CsvOptions&, std::size_t&);
REPLICATOR_TEMPLATE std::vector<double> detail::csv_numbers(const std::string&, const std::vector<CsvColumn>&, const CsvOptions&, std::size_t&);
REPLICATOR_TEMPLATE std::vector<std::int32_t> detail::csv_numbers(const std::string&, const std::vector<CsvColumn>&, const CsvOptions&, std::size_t&);
REPLICATOR_TEMPLATE std::vector<std::int64_t> detail::csv_numbers(const std::string&, const std::vector<CsvColumn>&, const CsvOptions&, std::size_t&);
REPLICATOR_TEMPLATE std::vector<std::uint8_t> detail::csv_numbers(const std::string&, const std::vector<CsvColumn>&, const CsvOptions&, std::size_t&);

REPLICATOR_TEMPLATE class detail::StoredRows<float>;
REPLICATOR_TEMPLATE class detail::StoredRows<double>;
REPLICATOR_TEMPLATE class detail::StoredRows<std::int32_t>;
REPLICATOR_TEMPLATE class detail::StoredRows<std::int64_t>;
REPLICATOR_TEMPLATE class detail::StoredRows<std::uint8_t>;
REPLICATOR_TEMPLATE class detail::StoredRows<bool>;
REPLICATOR_TEMPLATE class detail::StoredRows<bfloat16>;
REPLICATOR_TEMPLATE detail::StoredArray detail::read_idx_header(const std::string&, std::span<const std::byte>);
REPLICATOR_TEMPLATE detail::StoredArray detail::read_npy_header(const std::string&, std::span<const std::byte>);

}  // namespace replicator::data

namespace replicator {

REPLICATOR_TEMPLATE dlpack::Owner<dlpack::ManagedVersioned> to_dlpack(AnyArray);
REPLICATOR_TEMPLATE dlpack::Owner<dlpack::Managed> to_dlpack_unversioned(AnyArray);
REPLICATOR_TEMPLATE AnyArray from_dlpack(dlpack::ManagedVersioned*);
REPLICATOR_TEMPLATE AnyArray from_dlpack(dlpack::Managed*);

}  // namespace replicator
