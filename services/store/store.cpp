// Stage 2 of a save, and the collective around both stages. Until the last rename nothing of a generation has
// its final name, so whatever fails before leaves the older ones as they were.
#include <tenon/checkpoint.hpp>

#include "base/elapsed.hpp"
#include "store/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

TENON_ABI_BEGIN

using namespace checkpoint;

namespace {

// The coordinator's verdict for the others: one letter, then the reason.
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
    // Both stand under their own names; recover() removes the replaced one.
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
    write_text_atomically(files_, path + "/" + kManifestName, manifest_text(manifest, &crc));

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
  // The generation stands; trouble from here on is reported and does not undo it.
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

TENON_ABI_END
