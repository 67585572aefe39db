/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens Parquet and Arrow files with Arrow's C++ library. An object of its own,
 * which src/data/chat/arrow.c loads when there is such a file: nothing else
 * needs the library. Read arrow_stream.h before. */
#include <arrow/c/bridge.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/util/iterator.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "arrow_stream.h"

namespace
{

using Batch = std::shared_ptr<arrow::RecordBatch>;
using Reader = std::shared_ptr<arrow::RecordBatchReader>;
using File = std::shared_ptr<arrow::io::RandomAccessFile>;

/* A reader of what `next` gives: what is damaged is an error, not read. */
template <typename Next>
arrow::Result<Reader> check_all(Next next,
                                std::shared_ptr<arrow::Schema> schema)
{
    auto checked = [next]() mutable -> arrow::Result<Batch> {
        ARROW_ASSIGN_OR_RAISE(Batch batch, next());
        ARROW_RETURN_NOT_OK(batch == nullptr ? arrow::Status::OK()
                                             : batch->ValidateFull());
        return batch;
    };
    return arrow::RecordBatchReader::MakeFromIterator(
        arrow::MakeFunctionIterator(checked), std::move(schema));
}

arrow::Result<Reader> open_parquet(const File &file)
{
    parquet::ReaderProperties buffered;
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    parquet::arrow::FileReaderBuilder builder;
    std::unique_ptr<parquet::arrow::FileReader> made;
    buffered.enable_buffered_stream();
    properties.set_batch_size(256);
    properties.set_pre_buffer(false);
    ARROW_RETURN_NOT_OK(builder.Open(file, buffered));
    builder.properties(properties);
    ARROW_RETURN_NOT_OK(builder.Build(&made));
    std::shared_ptr<parquet::arrow::FileReader> reader = std::move(made);
    ARROW_ASSIGN_OR_RAISE(Reader batches, reader->GetRecordBatchReader());
    return check_all([reader, batches]() { return batches->Next(); },
                     batches->schema()); /* which needs the reader */
}

/* Data sets are written as streams, .feather and some .arrow as files. */
arrow::Result<Reader> open_ipc(const File &file)
{
    auto opened = arrow::ipc::RecordBatchFileReader::Open(file);
    if (!opened.ok()) {
        ARROW_RETURN_NOT_OK(file->Seek(0));
        ARROW_ASSIGN_OR_RAISE(auto stream,
                              arrow::ipc::RecordBatchStreamReader::Open(file));
        return check_all([stream]() { return stream->Next(); },
                         stream->schema());
    }
    std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader = *opened;
    auto next = [reader, i = 0]() mutable -> arrow::Result<Batch> {
        return i < reader->num_record_batches() ? reader->ReadRecordBatch(i++)
                                                : Batch(nullptr);
    };
    return check_all(next, reader->schema());
}

arrow::Status open_file(const std::string &path, ArrowArrayStream *stream)
{
    ARROW_ASSIGN_OR_RAISE(File file, arrow::io::ReadableFile::Open(path));
    ARROW_ASSIGN_OR_RAISE(Reader reader, path.ends_with(".parquet")
                                             ? open_parquet(file)
                                             : open_ipc(file));
    return arrow::ExportRecordBatchReader(reader, stream);
}

} // namespace

extern "C" __attribute__((visibility("default"))) int
loong_arrow_open(const char *path, ArrowArrayStream *stream, char *error,
                 size_t size)
{
    std::string wrong;
    try {
        arrow::Status status = open_file(path, stream);
        wrong = status.ok() ? "" : status.ToString();
    } catch (const std::exception &e) {
        wrong = e.what();
    }
    std::snprintf(error, size, "%s", wrong.c_str());
    return wrong.empty() ? 0 : 1;
}
