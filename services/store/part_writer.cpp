// Stage 1 of a save: one rank's parts become one safetensors file in `step-<n>.tmp/`, on the medium when this
// ends.
#include "store/generation.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::checkpoint {

namespace {

// Tensors, row lists and payloads of one rank, on their way into its file.
struct PartFile {
  std::vector<SafetensorsItem> items;
  std::map<std::string, TensorRecord, std::less<>> tensors;
  std::int64_t bytes = 0;

  void put(const std::string& key, DType dtype, const Shape& shape, std::span<const std::byte> data) {
    // Safetensors counts packed elements in whole bytes; a ragged tensor goes as bytes, its type is in the
    // manifest.
    if (dtype_bits(dtype) % 8 != 0 && (shape.elements() % 8) * dtype_bits(dtype) % 8 != 0) {
      items.push_back({key, DType::kU8, Shape{static_cast<std::int64_t>(data.size())}, data});
    } else {
      items.push_back({key, dtype, shape, data});
    }
    bytes += static_cast<std::int64_t>(data.size());
  }
};

void check_item(const SaveItem& item) {
  const auto fail = [&](const std::string& what) {
    fail_run("cannot save tensor '" + item.name + "': " + what);
  };
  if (item.name.empty() || item.name.find('#') != std::string::npos)
    fail("its name is empty or contains '#'");
  const Shape& part = item.data.shape;
  if (item.offset.rank() != item.global_shape.rank() || part.rank() != item.global_shape.rank()) {
    fail(fmt::format("part {} at {} and global shape {} differ in rank", part.text(), item.offset.text(),
                     item.global_shape.text()));
  }
  if (item.rows.empty() && !box_fits({item.offset, part}, item.global_shape)) {
    fail(fmt::format("part {} at {} is outside the global shape {}", part.text(), item.offset.text(),
                     item.global_shape.text()));
  }
  if (!item.rows.empty()) {
    if (part.rank() == 0 || item.offset[0] != 0 || part[0] != static_cast<std::int64_t>(item.rows.size())) {
      fail(fmt::format("{} rows were named for a part {} at {}", item.rows.size(), part.text(),
                       item.offset.text()));
    }
    for (std::size_t i = 0; i < item.rows.size(); ++i) {
      if (item.rows[i] < 0 || item.rows[i] >= item.global_shape[0] ||
          (i > 0 && item.rows[i] <= item.rows[i - 1])) {
        fail(fmt::format("row ids must ascend within {}; entry {} is {}", item.global_shape.text(), i,
                         item.rows[i]));
      }
    }
  }
  if (item.encoding != kPlainEncoding) return;
  if (item.data.elements() > 0 && item.data.data == nullptr) fail("it has no data");
  if (item.data.space != MemorySpace::kHost) fail("it does not lie in host memory");
}

void add_item(PartFile& file, const SaveItem& item) {
  check_item(item);
  if (item.data.elements() == 0 && item.global_shape.elements() != 0) return;
  TensorRecord& tensor =
      file.tensors.try_emplace(item.name, TensorRecord{item.data.dtype, item.global_shape, {}}).first->second;
  if (tensor.dtype != item.data.dtype || !(tensor.shape == item.global_shape)) {
    fail_run("parts of tensor '" + item.name + "' disagree about its type or global shape");
  }
  PartRecord part;
  part.key = tensor.parts.empty() ? item.name : fmt::format("{}#{}", item.name, tensor.parts.size());
  part.box = {item.offset, item.data.shape};
  part.encoding = item.encoding;
  if (item.encoding == kPlainEncoding) {
    file.put(part.key, item.data.dtype, item.data.shape,
             item.data.elements() == 0 ? std::span<std::byte>() : item.data.raw());
  } else {
    file.put(part.key, DType::kU8, Shape{static_cast<std::int64_t>(item.payload.size())}, item.payload);
  }
  if (!item.rows.empty()) {
    part.rows_key = part.key + "#rows";
    file.put(part.rows_key, DType::kI64, Shape{static_cast<std::int64_t>(item.rows.size())},
             std::as_bytes(item.rows));
  }
  tensor.parts.push_back(std::move(part));
}

// A folder made but not synced into its parent is lost by a power cut together with all that it holds.
void make_folder_durably(FileSystem& files, const std::string& path) {
  if (files.exists(path)) return;
  const std::string parent = parent_path(path);
  if (parent != path) make_folder_durably(files, parent);
  files.make_directories(path);
  try {
    files.sync_directory(parent);
  } catch (const FileError&) {
    // The next save would find the folder and take it for durable.
    try {
      files.remove(path);
    } catch (const FileError&) {
      // Another rank has begun to write into it, or the medium takes nothing: recover() syncs it later.
    }
    throw;
  }
}

RankReport empty_report(const SaveRequest& request, int rank, int world_size) {
  RankReport report;
  report.rank = rank;
  report.part.step = request.step;
  report.part.timeline = request.timeline;
  report.part.world_size = world_size;
  report.part.consistent = request.consistent;
  report.part.base = request.base;
  return report;
}

}  // namespace
}  // namespace tenon::checkpoint

TENON_ABI_BEGIN

using namespace checkpoint;

std::string CheckpointStore::write_part(const SaveRequest& request, int rank, int world_size) {
  RankReport report = empty_report(request, rank, world_size);
  try {
    PartFile content;
    for (const SaveItem& item : request.items) add_item(content, item);

    phase("write");
    make_folder_durably(files_, folder_);
    const std::int64_t expected = std::max(content.bytes, request.expected_bytes);
    const std::int64_t free = files_.free_bytes(folder_);
    // A fifth more than expected: headers, the manifest, and what others write meanwhile.
    if (free - expected / 5 < expected) {
      fail_run(fmt::format("{} has {} free bytes; a save of {} bytes needs {}", folder_, free, expected,
                           expected + expected / 5));
    }
    const std::string path = folder_ + "/" + folder_name(FolderKind::kWriting, request.step);
    files_.make_directories(path);
    if (!content.items.empty()) {
      const std::string name = fmt::format("rank{}.safetensors", rank);
      const std::unique_ptr<WritableFile> file = files_.create(path + "/" + name);
      DigestingFile digesting(*file, name);
      write_safetensors(digesting, content.items, {{"format", "tenon"}});
      phase("sync");
      file->sync();
      file->close();
      // The coordinator syncs the folder too; on a network file system only the writer's own call is sure.
      files_.sync_directory(path);
      report.part.files.push_back(digesting.record());
      report.bytes = digesting.record().bytes;
    }
    report.part.tensors = std::move(content.tensors);
    for (const MetaBlock& block : request.meta) report.part.meta[block.name] = block.value;
    return report_text(report);
  } catch (const std::exception& error) {
    report = empty_report(request, rank, world_size);
    report.error = *error.what() != '\0' ? error.what() : "unknown error";
    return report_text(report);
  }
}

SaveResult CheckpointStore::fail(const SaveRequest& request, int rank, int world_size,
                                 const std::string& reason, SaveExchange& exchange) {
  RankReport report = empty_report(request, rank, world_size);
  report.error = reason;
  return conclude(request.step, report_text(report), rank, exchange);
}

TENON_ABI_END
