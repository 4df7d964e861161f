// The checkpoint store: one rank's part of a save, the collective around it, and which generations are there,
// can be trusted, and may go.
#include <tenon/checkpoint.hpp>

#include "base/elapsed.hpp"
#include "store/files.hpp"
#include "store/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <limits>
#include <set>

namespace tenon::checkpoint {

// Meta entry of StoreOptions::owner.
constexpr char kOwner[] = "core/owner";

// Stage 1 of a save: one rank's parts become one safetensors file in `step-<n>.tmp/`, on the medium when this
// ends.

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
    if (!options_.owner.empty()) report.part.meta[kOwner] = options_.owner;
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

// Stage 2 of a save and the collective around both stages; which generations are there, which of them can be
// trusted, and which may go. Until the last rename nothing of a generation has its final name, so whatever
// fails before leaves the older ones as they were.

namespace {

// The coordinator's verdict for the other ranks: one letter, then the reason.
std::string verdict_text(const SaveResult& result) {
  return fmt::format("{}{} {}", result.status == SaveStatus::kCommitted ? "c" : "a", result.all_bytes,
                     result.error);
}

void apply_verdict(const std::string& text, SaveResult& result) {
  result.status = !text.empty() && text.front() == 'c' ? SaveStatus::kCommitted : SaveStatus::kAborted;
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) {
    result.status = SaveStatus::kAborted;
    result.error = "the coordinator sent no verdict";
    return;
  }
  std::from_chars(text.data() + 1, text.data() + space, result.all_bytes);
  result.error = text.substr(space + 1);
}

}  // namespace

SaveExchange::~SaveExchange() = default;
SoloExchange::~SoloExchange() = default;
std::vector<std::string> SoloExchange::gather(const std::string& text) {
  return {text};
}
std::string SoloExchange::broadcast(const std::string& text) {
  return text;
}
bool SoloExchange::any(bool mine) {
  return mine;
}

CheckpointStore::CheckpointStore(FileSystem& files, std::string folder, StoreOptions options)
    : files_(files), folder_(std::move(folder)), options_(std::move(options)) {
  if (options_.keep < 2) {
    fail_config(fmt::format("a checkpoint store must keep at least 2 generations, found {}", options_.keep));
  }
}

void CheckpointStore::phase(const char* name) const {
  if (options_.hook) options_.hook(name);
}

void CheckpointStore::abort(std::int64_t step) noexcept {
  try {
    remove_tree(files_, folder_ + "/" + folder_name(FolderKind::kWriting, step));
  } catch (const std::exception&) {
    // A left-over `.tmp` is never read; recover() removes it.
  }
}

void CheckpointStore::publish(std::int64_t step) {
  const std::string writing = folder_ + "/" + folder_name(FolderKind::kWriting, step);
  const std::string complete = folder_ + "/" + folder_name(FolderKind::kComplete, step);
  const std::string replaced = folder_ + "/" + folder_name(FolderKind::kReplaced, step);
  const bool replaces = files_.exists(complete);
  // A full folder cannot be renamed over. Under its other name the old generation stays good until the new
  // one has its place: recover() puts it back if this is interrupted.
  if (replaces) {
    remove_tree(files_, replaced);
    files_.rename(complete, replaced);
  }
  try {
    files_.rename(writing, complete);
    files_.sync_directory(folder_);
  } catch (const std::exception&) {
    if (files_.exists(complete)) files_.rename(complete, writing);
    if (replaces) files_.rename(replaced, complete);
    try {
      files_.sync_directory(folder_);
    } catch (const FileError&) {
      // A power cut may then bring back what all ranks were told is not there; recover() judges it.
    }
    throw;
  }
  try {
    if (replaces) remove_tree(files_, replaced);
  } catch (const FileError&) {
    // Both exist under their own names; recover() removes the replaced one.
  }
}

SaveResult CheckpointStore::commit(std::int64_t step, std::span<const std::string> reports) {
  SaveResult result;
  result.step = step;
  const std::string path = folder_ + "/" + folder_name(FolderKind::kWriting, step);
  try {
    std::vector<RankReport> parsed;
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      parsed.push_back(parse_report(reports[rank], fmt::format("save report of rank {}", rank)));
      if (!parsed.back().error.empty()) fail_run(fmt::format("rank {}: {}", rank, parsed.back().error));
    }
    Manifest manifest = join_reports(parsed);
    if (manifest.step != step)
      fail_run(fmt::format("step {} was to be committed, found {}", step, manifest.step));
    if (!parsed.empty()) result.bytes = parsed.front().bytes;
    for (const RankReport& report : parsed) result.all_bytes += report.bytes;

    phase("manifest");
    check_parts(manifest, path);
    if (manifest.base >= 0) {
      const Generation base(files_, folder_ + "/" + folder_name(FolderKind::kComplete, manifest.base));
      manifest.base_crc = base.manifest_crc();
    }
    for (const DirectoryEntry& entry : files_.list(path)) {
      // An aborted save of this step by a larger world may have left files.
      if (std::ranges::find(manifest.files, entry.name, &FileRecord::name) == manifest.files.end()) {
        remove_tree(files_, path + "/" + entry.name);
      }
    }
    std::uint32_t crc = 0;
    files_.write_text_atomically(path + "/" + kManifestName, manifest_text(manifest, &crc));

    phase("verify");
    Generation(files_, path).verify();

    phase("rename");
    publish(step);
    result.status = SaveStatus::kCommitted;
  } catch (const std::exception& error) {
    result.status = SaveStatus::kAborted;
    result.error = error.what();
    abort(step);
    return result;
  }
  // The generation is valid; errors from here on are reported and do not undo it.
  try {
    phase("gc");
    collect_garbage();
    phase("done");
  } catch (const std::exception& error) {
    result.error = std::string("committed, but old generations were not removed: ") + error.what();
  }
  return result;
}

SaveResult CheckpointStore::save(const SaveRequest& request, int rank, int world_size,
                                 SaveExchange& exchange) {
  const auto start = base::Steady::now();
  const std::string report = write_part(request, rank, world_size);
  const double write_s = base::seconds_since(start);
  SaveResult result = conclude(request.step, report, rank, exchange);
  result.write_s = write_s;
  return result;
}

SaveResult CheckpointStore::conclude(std::int64_t step, const std::string& report, int rank,
                                     SaveExchange& exchange) {
  const auto start = base::Steady::now();
  SaveResult result;
  bool decided = false;
  try {
    const std::vector<std::string> reports = exchange.gather(report);
    if (rank == 0) {
      result = commit(step, reports);
      decided = true;
    }
    const std::string verdict = exchange.broadcast(rank == 0 ? verdict_text(result) : std::string());
    if (rank != 0) {
      apply_verdict(verdict, result);
      if (result.status == SaveStatus::kCommitted)
        result.bytes = parse_report(report, "own save report").bytes;
    }
  } catch (const std::exception& error) {
    if (!decided) {
      result.status = SaveStatus::kAborted;
      result.error = error.what();
      if (rank == 0) abort(step);
    } else if (result.error.empty()) {
      result.error = std::string("decided, but the other ranks may not know: ") + error.what();
    }
  }
  result.step = step;
  result.commit_s = base::seconds_since(start);
  return result;
}

namespace {

// Facts on which the choice between generations depends.
struct Candidate {
  std::int64_t step = 0;
  std::int64_t timeline = 0;
  std::int64_t base = -1;
  std::uint32_t base_crc = 0;
  std::uint32_t crc = 0;
  bool consistent = true;
};

// `owner`: as in StoreOptions.
Candidate candidate_of(FileSystem& files, const std::string& folder, std::int64_t step,
                       const std::string& owner) {
  const Generation generation(files, folder + "/" + folder_name(FolderKind::kComplete, step));
  const Manifest& manifest = generation.manifest();
  if (manifest.step != step) {
    fail_run(fmt::format("{}: its manifest is of step {}", generation.path(), manifest.step));
  }
  if (!owner.empty()) {
    const auto found = manifest.meta.find(kOwner);
    const std::string theirs = found == manifest.meta.end() ? "none" : found->second;
    if (theirs != owner)
      fail_run(
          fmt::format("{}: it is of another run: owner {}, expected {}", generation.path(), theirs, owner));
  }
  return {step,
          manifest.timeline,
          manifest.base,
          manifest.base_crc,
          generation.manifest_crc(),
          manifest.consistent};
}

void newest_first(std::vector<Candidate>& candidates) {
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.timeline != b.timeline ? a.timeline > b.timeline : a.step > b.step;
  });
}

// The steps that restoring a generation reads, or nothing if one of them is not the generation it was built
// on.
std::optional<std::set<std::int64_t>> chain_of(const Candidate& candidate,
                                               const std::vector<Candidate>& all) {
  std::set<std::int64_t> chain{candidate.step};
  const Candidate* link = &candidate;
  while (link->base >= 0) {
    const auto base = std::ranges::find(all, link->base, &Candidate::step);
    if (base == all.end() || base->crc != link->base_crc) return std::nullopt;
    link = &*base;
    chain.insert(link->step);
  }
  return chain;
}

// Whether the failure shows that this is no complete generation, now and later.
bool says_what_it_is(const Error& error) {
  const auto* file_error = dynamic_cast<const FileError*>(&error);
  if (file_error == nullptr) return true;
  const int code = file_error->code();
  return code == ENOENT || code == EISDIR || code == ENOTDIR || code == EFBIG;
}

// Whether the failure says that the generation is damaged. Anything else (permissions, too many open files)
// says nothing about it and must not cost a good generation its name.
bool is_damage(const Error& error) {
  const auto* file_error = dynamic_cast<const FileError*>(&error);
  return says_what_it_is(error) || (file_error != nullptr && file_error->code() == EIO);
}

std::string rename_aside(FileSystem& files, const std::string& folder, std::int64_t step, FolderKind kind) {
  std::string to = folder + "/" + folder_name(kind, step);
  remove_tree(files, to);
  files.rename(folder + "/" + folder_name(FolderKind::kComplete, step), to);
  files.sync_directory(folder);
  return to;
}

std::string move_aside(FileSystem& files, const std::string& folder, std::int64_t step) {
  try {
    return rename_aside(files, folder, step, FolderKind::kRejected);
  } catch (const FileError&) {
    // On a medium that cannot be written the generation is passed over all the same.
    return folder + "/" + folder_name(FolderKind::kComplete, step);
  }
}

// Increments that are read through `step`, newest first, without that one.
std::vector<std::int64_t> built_on(std::int64_t step, const std::vector<Candidate>& candidates) {
  std::vector<std::int64_t> steps;
  for (const Candidate& candidate : candidates) {
    const Candidate* link = &candidate;
    // A chain is at most as long as there are candidates, whatever their manifests say.
    for (std::size_t length = 0; link->base >= 0 && length < candidates.size(); ++length) {
      if (link->base == step) {
        steps.push_back(candidate.step);
        break;
      }
      const auto base = std::ranges::find(candidates, link->base, &Candidate::step);
      if (base == candidates.end() || base->crc != link->base_crc) break;
      link = &*base;
    }
  }
  return steps;
}

// Removes what a crash left of saves and removals.
void remove_leftovers(FileSystem& files, const std::string& folder) {
  bool changed = false;
  for (const DirectoryEntry& entry : files.list(folder)) {
    const FolderName name = parse_folder_name(entry.name);
    const std::string path = folder + "/" + entry.name;
    const std::string complete = folder + "/" + folder_name(FolderKind::kComplete, name.step);
    if (name.kind == FolderKind::kReplaced && !files.exists(complete)) {
      files.rename(path, complete);
      changed = true;
    } else if (name.kind == FolderKind::kWriting || name.kind == FolderKind::kRemoving ||
               name.kind == FolderKind::kReplaced) {
      remove_tree(files, path);
      changed = true;
    }
  }
  if (changed) files.sync_directory(folder);
  // The process that made the folder may have died before its name was durable.
  files.sync_directory(parent_path(folder));
}

}  // namespace

std::vector<std::int64_t> CheckpointStore::generations() const {
  std::vector<std::int64_t> steps;
  if (!files_.exists(folder_)) return steps;
  for (const DirectoryEntry& entry : files_.list(folder_)) {
    const FolderName name = parse_folder_name(entry.name);
    if (name.kind == FolderKind::kComplete && is_folder(files_, folder_, entry)) steps.push_back(name.step);
  }
  std::ranges::sort(steps);
  return steps;
}

void CheckpointStore::tidy() noexcept {
  try {
    if (files_.exists(folder_)) remove_leftovers(files_, folder_);
  } catch (const std::exception&) {
    // Left-overs are never read; a medium that cannot be written can still be restored from.
  }
}

std::optional<GenerationAge> CheckpointStore::newest(bool consistent_only, std::int64_t most) const {
  std::optional<GenerationAge> newest;
  for (const std::int64_t step : generations()) {
    GenerationAge age{std::numeric_limits<std::int64_t>::max(), step};
    try {
      const Candidate candidate = candidate_of(files_, folder_, step, options_.owner);
      if ((!candidate.consistent && consistent_only) || step > most) continue;
      age.timeline = candidate.timeline;
    } catch (const Error&) {
      // Its age is unknown until recover() has judged it.
    }
    newest = std::max(newest.value_or(age), age);
  }
  return newest;
}

void CheckpointStore::verify(std::int64_t step) const {
  std::int64_t link = step;
  verify_chain(step, link);
}

// `link` is the generation that is being looked at: after an exception, the one at fault.
void CheckpointStore::verify_chain(std::int64_t step, std::int64_t& link) const {
  std::int64_t base = step;
  std::uint32_t expected = 0;
  for (bool first = true; base >= 0; first = false) {
    // Where the base is not there, or another one, the increment is at fault.
    Generation generation(files_, folder_ + "/" + folder_name(FolderKind::kComplete, base));
    if (generation.manifest().step != base) {
      fail_run(fmt::format("{}: its manifest is of step {}", generation.path(), generation.manifest().step));
    }
    if (!first && generation.manifest_crc() != expected) {
      fail_run(fmt::format(
          "{} is not the base that step {} was built on: manifest CRC-32C {:08x}, expected {:08x}",
          generation.path(), step, generation.manifest_crc(), expected));
    }
    link = base;
    generation.verify();
    base = generation.manifest().base;
    expected = generation.manifest().base_crc;
  }
}

RestorePoint CheckpointStore::recover(bool consistent_only, std::int64_t newest) {
  RestorePoint point;
  if (!files_.exists(folder_)) return point;
  tidy();
  std::set<std::int64_t> gone;
  const auto reject = [&](std::int64_t step, const std::string& reason, std::int64_t because = -1) {
    if (!gone.insert(step).second) return;
    point.rejected.push_back({step, reason, move_aside(files_, folder_, step), because});
  };
  std::vector<Candidate> candidates;
  for (const std::int64_t step : generations()) {
    try {
      candidates.push_back(candidate_of(files_, folder_, step, options_.owner));
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      reject(step, error.what());
    }
  }
  newest_first(candidates);
  for (const std::int64_t unreadable : std::set(gone)) {
    for (const std::int64_t step : built_on(unreadable, candidates))
      reject(step, fmt::format("it is built on step {}, which was put aside", unreadable), unreadable);
  }
  for (const Candidate& candidate : candidates) {
    const std::int64_t step = candidate.step;
    if (step > newest || gone.contains(step) || (consistent_only && !candidate.consistent)) continue;
    std::int64_t at_fault = step;
    try {
      verify_chain(step, at_fault);
      point.step = step;
      break;
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      reject(step, error.what(), at_fault == step ? -1 : at_fault);
      for (const std::int64_t other : built_on(at_fault, candidates)) reject(other, error.what(), at_fault);
      reject(at_fault, error.what());
      newest = std::min(newest, step - 1);
    }
  }
  return point;
}

std::vector<RejectedGeneration> CheckpointStore::distrust(std::int64_t step, const std::string& reason) {
  std::vector<Candidate> candidates;
  for (const std::int64_t other : generations()) {
    try {
      candidates.push_back(candidate_of(files_, folder_, other, options_.owner));
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      // recover() judges it.
    }
  }
  newest_first(candidates);
  std::vector<RejectedGeneration> distrusted;
  // The base first: if this is interrupted, increments without it are not read either.
  distrusted.push_back({step, reason, rename_aside(files_, folder_, step, FolderKind::kDistrusted)});
  for (const std::int64_t other : built_on(step, candidates))
    distrusted.push_back(
        {other, reason, rename_aside(files_, folder_, other, FolderKind::kDistrusted), step});
  return distrusted;
}

std::vector<std::int64_t> CheckpointStore::collect_garbage() {
  std::vector<Candidate> candidates;
  for (const std::int64_t step : generations()) {
    try {
      candidates.push_back(candidate_of(files_, folder_, step, options_.owner));
    } catch (const Error& error) {
      // The bases of an unreadable one are unknown, so nothing may go.
      if (!says_what_it_is(error)) throw;
      // Not a complete generation: it neither counts nor is it removed; recover() judges it.
    }
  }
  newest_first(candidates);

  // The newest `keep` of any kind with the bases that they need, and the newest `keep` that need none: one
  // damaged base must not take every generation with it.
  std::set<std::int64_t> needed;
  int newest = 0;
  int independent = 0;
  for (const Candidate& candidate : candidates) {
    const std::optional<std::set<std::int64_t>> chain = chain_of(candidate, candidates);
    if (!chain) {
      // Perhaps only unreadable at this moment; recover() judges it, removal would be final.
      needed.insert(candidate.step);
      continue;
    }
    if (newest < options_.keep) {
      needed.insert(chain->begin(), chain->end());
      ++newest;
    }
    if (candidate.base < 0 && independent < options_.keep) {
      needed.insert(candidate.step);
      ++independent;
    }
  }

  std::vector<std::int64_t> removed;
  for (const Candidate& candidate : candidates) {
    if (needed.contains(candidate.step) || independent < options_.keep) continue;
    const std::string gone = folder_ + "/" + folder_name(FolderKind::kRemoving, candidate.step);
    // The one that it replaced may still exist, and recover() would take it for the generation of this step.
    remove_tree(files_, folder_ + "/" + folder_name(FolderKind::kReplaced, candidate.step));
    // The new name first: a removal cut short must not look like a damaged generation.
    remove_tree(files_, gone);
    files_.rename(folder_ + "/" + folder_name(FolderKind::kComplete, candidate.step), gone);
    files_.sync_directory(folder_);
    remove_tree(files_, gone);
    removed.push_back(candidate.step);
  }
  std::ranges::sort(removed);
  return removed;
}

TENON_ABI_END
