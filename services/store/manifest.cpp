// Joining what ranks wrote into one manifest, and the geometry that makes its parts whole tensors.
#include "store/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::checkpoint {

bool PartRecord::operator==(const PartRecord& other) const {
  return file == other.file && key == other.key && box.offset == other.box.offset &&
         box.extents == other.box.extents && encoding == other.encoding && rows_key == other.rows_key;
}

bool TensorRecord::operator==(const TensorRecord& other) const {
  return dtype == other.dtype && shape == other.shape && parts == other.parts;
}

Manifest join_reports(std::span<const RankReport> reports) {
  if (reports.empty()) fail_run("a checkpoint needs the report of at least one rank");
  Manifest joined = reports.front().part;
  joined.files.clear();
  joined.tensors.clear();
  joined.meta.clear();
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const RankReport& report = reports[i];
    const Manifest& part = report.part;
    if (report.rank != static_cast<int>(i))
      fail_run(fmt::format("report {} comes from rank {}", i, report.rank));
    if (part.step != joined.step || part.timeline != joined.timeline || part.base != joined.base ||
        part.consistent != joined.consistent || part.world_size != static_cast<int>(reports.size())) {
      fail_run(fmt::format(
          "rank {} saves step {} (timeline {}, base {}, world of {}), rank 0 saves step {} (timeline {}, "
          "base {}, world of {})",
          i, part.step, part.timeline, part.base, part.world_size, joined.step, joined.timeline, joined.base,
          reports.size()));
    }
    for (const auto& [name, value] : part.meta) {
      const auto [entry, added] = joined.meta.emplace(name, value);
      if (!added && entry->second != value) {
        fail_run(fmt::format(
            "ranks disagree about meta '{}'; put the rank into its name if it differs per rank", name));
      }
    }
    const int first_file = static_cast<int>(joined.files.size());
    joined.files.insert(joined.files.end(), part.files.begin(), part.files.end());
    for (const auto& [name, tensor] : part.tensors) {
      TensorRecord& target =
          joined.tensors.try_emplace(name, TensorRecord{tensor.dtype, tensor.shape, {}}).first->second;
      if (target.dtype != tensor.dtype || !(target.shape == tensor.shape)) {
        fail_run(fmt::format("tensor '{}' is {} {} on rank {}, {} {} on a rank before", name,
                             dtype_name(tensor.dtype), tensor.shape.text(), i, dtype_name(target.dtype),
                             target.shape.text()));
      }
      for (PartRecord record : tensor.parts) {
        record.file += first_file;
        target.parts.push_back(std::move(record));
      }
    }
  }
  return joined;
}

namespace {

void check_tensor(const std::string& name, const TensorRecord& tensor, bool complete,
                  const std::string& label) {
  const auto fail = [&](const std::string& what) { fail_run(label + ": tensor '" + name + "' " + what); };
  std::int64_t covered = 0;
  std::size_t row_parts = 0;
  for (const PartRecord& part : tensor.parts) {
    const bool rows = !part.rows_key.empty();
    row_parts += rows ? 1 : 0;
    if (!box_fits(part.box, tensor.shape) ||
        (rows && (tensor.shape.rank() == 0 || part.box.offset[0] != 0))) {
      fail(fmt::format("has a part {} at {} outside its shape {}", part.box.extents.text(),
                       part.box.offset.text(), tensor.shape.text()));
    }
    if (__builtin_add_overflow(covered, part.box.extents.elements(), &covered)) fail("has overlapping parts");
  }
  if (row_parts != 0 && row_parts != tensor.parts.size()) fail("mixes slices and rows in one generation");
  if (row_parts == 0) {
    // Sorted by their first dimension, only neighbours can overlap in the common case of row-wise shards.
    std::vector<Box> boxes;
    for (const PartRecord& part : tensor.parts) boxes.push_back(part.box);
    const auto first = [](const Box& box) { return box.offset.rank() == 0 ? 0 : box.offset[0]; };
    std::ranges::sort(boxes, {}, first);
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      const std::int64_t end = first(boxes[i]) + (boxes[i].extents.rank() == 0 ? 1 : boxes[i].extents[0]);
      for (std::size_t j = i + 1; j < boxes.size() && first(boxes[j]) < end; ++j) {
        if (shared_elements(boxes[i], boxes[j]) > 0) {
          fail(fmt::format("has overlapping parts {} at {} and {} at {}", boxes[i].extents.text(),
                           boxes[i].offset.text(), boxes[j].extents.text(), boxes[j].offset.text()));
        }
      }
    }
  }
  if (complete && covered != tensor.shape.elements()) {
    fail(fmt::format(
        "{}: its parts hold {} of {} elements; a rank did not give its part, or two gave the same",
        tensor.shape.text(), covered, tensor.shape.elements()));
  }
}

}  // namespace

void check_parts(const Manifest& manifest, const std::string& label) {
  for (const auto& [name, tensor] : manifest.tensors) check_tensor(name, tensor, manifest.base < 0, label);
  std::vector<std::string_view> names;
  for (const FileRecord& file : manifest.files) names.push_back(file.name);
  std::ranges::sort(names);
  if (std::ranges::adjacent_find(names) != names.end()) fail_run(label + ": names a file twice");
  if (manifest.base >= manifest.step) {
    fail_run(
        fmt::format("{}: step {} cannot be an increment of step {}", label, manifest.step, manifest.base));
  }
}

}  // namespace tenon::checkpoint
