// Names of generation folders and checked reads of their tensors.
#include "store/generation.hpp"

#include "store/canary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tenon::checkpoint {

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::pair<FolderKind, std::string_view> kSuffixes[] = {
    {FolderKind::kComplete, ""},     {FolderKind::kWriting, ".tmp"},
    {FolderKind::kReplaced, ".old"}, {FolderKind::kRemoving, ".gc"},
    {FolderKind::kRejected, ".bad"}, {FolderKind::kDistrusted, ".distrusted"}};

}  // namespace

FolderName parse_folder_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  const std::string_view rest = name.substr(kPrefix.size());
  FolderName parsed;
  const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), parsed.step);
  if (failure != std::errc() || parsed.step < 0) return {};
  const std::string_view suffix = rest.substr(end - rest.data());
  for (const auto& [kind, text] : kSuffixes) {
    if (suffix == text) parsed.kind = kind;
  }
  // "step-007" is not a name that the store gives; taking it for step 7 would rename the wrong folder.
  return parsed.kind != FolderKind::kOther && folder_name(parsed.kind, parsed.step) == name ? parsed
                                                                                            : FolderName{};
}

std::string folder_name(FolderKind kind, std::int64_t step) {
  for (const auto& [known, suffix] : kSuffixes) {
    if (known == kind) return fmt::format("{}{}{}", kPrefix, step, suffix);
  }
  fail_run("a folder of no kind has no name");
}

Generation::Generation(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {
  const std::string label = path_ + "/" + kManifestName;
  manifest_ = parse_manifest(read_text(files_, label, kMaxManifestBytes), label, &manifest_crc_);
  open_.resize(manifest_.files.size());
}

Generation::OpenFile& Generation::file(int index) {
  OpenFile& open = open_[index];
  if (!open.tensors) {
    const FileRecord& record = manifest_.files[index];
    const std::string label = path_ + "/" + record.name;
    auto checked = std::make_unique<CheckedFile>(files_.open(label), record, label);
    const CheckedFile* view = checked.get();
    open.tensors = std::make_unique<SafetensorsReader>(std::move(checked), label);
    open.checked = view;
  }
  return open;
}

const SafetensorsEntry& Generation::entry_of(const std::string& name, const TensorRecord& tensor,
                                             const PartRecord& part) {
  const OpenFile& open = file(part.file);
  const SafetensorsEntry& entry = open.tensors->at(part.key);
  const std::int64_t expected = dtype_bytes(tensor.dtype, part.box.extents.elements());
  if (part.encoding == kPlainEncoding && entry.bytes() != expected) {
    fail_run(fmt::format("{}: part {} of tensor '{}' takes {} bytes as '{}', found {}", open.tensors->label(),
                         part.box.extents.text(), name, expected, part.key, entry.bytes()));
  }
  return entry;
}

const std::vector<std::int64_t>& Generation::rows_of(const std::string& name, const TensorRecord& tensor,
                                                     const PartRecord& part) {
  OpenFile& open = file(part.file);
  const auto known = open.rows.find(part.rows_key);
  if (known != open.rows.end()) return known->second;
  const SafetensorsEntry& entry = open.tensors->at(part.rows_key);
  const std::int64_t count = part.box.extents[0];
  if (entry.dtype != DType::kI64 || entry.bytes() != dtype_bytes(DType::kI64, count)) {
    fail_run(fmt::format("{}: '{}' should list {} rows of tensor '{}' as I64", open.tensors->label(),
                         part.rows_key, count, name));
  }
  std::vector<std::int64_t> rows(count);
  open.tensors->read(entry, 0, std::as_writable_bytes(std::span(rows)));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= tensor.shape[0] || (i > 0 && rows[i] <= rows[i - 1])) {
      fail_run(fmt::format("{}: rows of tensor '{}' must ascend within {}; entry {} is {}",
                           open.tensors->label(), name, tensor.shape.text(), i, rows[i]));
    }
  }
  return open.rows.emplace(part.rows_key, std::move(rows)).first->second;
}

std::int64_t Generation::copy_part(const std::string& name, const TensorRecord& tensor,
                                   const PartRecord& part, const Box& wanted, std::span<std::byte> out,
                                   const std::map<std::string, PartDecoder>& decoders) {
  Box reach = part.box;
  if (!part.rows_key.empty()) reach.extents[0] = tensor.shape[0];
  if (shared_elements(reach, wanted) == 0) return 0;

  const SafetensorsReader& stored = *file(part.file).tensors;
  const SafetensorsEntry& entry = entry_of(name, tensor, part);
  const std::vector<std::int64_t> no_rows;
  const std::vector<std::int64_t>& rows = part.rows_key.empty() ? no_rows : rows_of(name, tensor, part);

  ByteSource source = [&](std::int64_t offset, std::span<std::byte> to) { stored.read(entry, offset, to); };
  if (part.encoding != kPlainEncoding) {
    if (decoded_file_ != part.file || decoded_key_ != part.key) {
      const auto decoder = decoders.find(part.encoding);
      if (decoder == decoders.end()) {
        fail_run(fmt::format("{}: tensor '{}' is stored in the encoding '{}', for which no decoder was given",
                             stored.label(), name, part.encoding));
      }
      decoded_file_ = -1;
      decoded_.resize(dtype_bytes(tensor.dtype, part.box.extents.elements()));
      const std::vector<std::byte> payload = stored.read_all(entry);
      decoder->second({name, tensor.dtype, part.box.extents, rows, payload}, decoded_);
      decoded_file_ = part.file;
      decoded_key_ = part.key;
    }
    source = [&](std::int64_t offset, std::span<std::byte> to) {
      std::memcpy(to.data(), decoded_.data() + offset, to.size());
    };
  }
  if (part.rows_key.empty()) return copy_shared(tensor.dtype, part.box, source, wanted, out);

  // Neighbouring rows are copied as one box; rows below the wanted ones are skipped by search.
  Shape row_shape = part.box.extents;
  row_shape[0] = 1;
  const std::int64_t row_elements = row_shape.elements();
  std::int64_t copied = 0;
  auto first = std::ranges::lower_bound(rows, wanted.offset[0]);
  while (first != rows.end() && *first < wanted.offset[0] + wanted.extents[0]) {
    auto last = first + 1;
    while (last != rows.end() && *last == *(last - 1) + 1) ++last;
    Box run = part.box;
    run.offset[0] = *first;
    run.extents[0] = last - first;
    const std::int64_t skipped = (first - rows.begin()) * row_elements;
    if (dtype_bits(tensor.dtype) % 8 != 0 && (skipped % 8) * dtype_bits(tensor.dtype) % 8 != 0) {
      fail_run(stored.label() + ": rows of tensor '" + name + "' do not begin on bytes");
    }
    const std::int64_t skipped_bytes = dtype_bytes(tensor.dtype, skipped);
    copied += copy_shared(
        tensor.dtype, run,
        [&](std::int64_t offset, std::span<std::byte> to) { source(skipped_bytes + offset, to); }, wanted,
        out);
    first = last;
  }
  return copied;
}

void Generation::verify() {
  for (std::size_t i = 0; i < open_.size(); ++i) file(static_cast<int>(i)).checked->verify();
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const PartRecord& part : tensor.parts) entry_of(name, tensor, part);
    verify_rows(name, tensor);
  }
  verify_canaries();
}

void Generation::verify_canaries() const {
  for (const DirectoryEntry& entry : files_.list(path_)) {
    const std::optional<int> rank = canary_rank(entry.name);
    if (!rank) continue;
    const std::string label = path_ + "/" + entry.name;
    const CanaryRecord canary = parse_canary(read_text(files_, label, kMaxCanaryBytes), label);
    if (canary.slot != manifest_.step || canary.rank != *rank)
      fail_run(fmt::format("{}: the canary of rank {} of slot {}; expected that of rank {} of slot {}", label,
                           canary.rank, canary.slot, *rank, manifest_.step));
  }
}

void Generation::verify_rows(const std::string& name, const TensorRecord& tensor) {
  // Parts that hold the same columns must hold different rows, else one of them would win by chance.
  for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
    const PartRecord& part = tensor.parts[i];
    if (part.rows_key.empty()) return;
    const std::vector<std::int64_t>& rows = rows_of(name, tensor, part);
    for (std::size_t j = 0; j < i; ++j) {
      const PartRecord& other = tensor.parts[j];
      Box columns = part.box;
      Box other_columns = other.box;
      columns.extents[0] = other_columns.extents[0] = 1;
      if (shared_elements(columns, other_columns) == 0) continue;
      const std::vector<std::int64_t>& other_rows = rows_of(name, tensor, other);
      std::vector<std::int64_t> both;
      std::ranges::set_intersection(rows, other_rows, std::back_inserter(both));
      if (!both.empty()) {
        fail_run(fmt::format("{}: row {} of tensor '{}' is stored twice", path_, both.front(), name));
      }
    }
  }
}

}  // namespace tenon::checkpoint
