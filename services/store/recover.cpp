// Which generations are there, which of them can be trusted, and which may go.
#include <tenon/checkpoint.hpp>

#include "store/generation.hpp"
#include "store/links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>

TENON_ABI_BEGIN

using namespace checkpoint;

namespace {

// What the choice between generations depends on.
struct Candidate {
  std::int64_t step = 0;
  std::int64_t timeline = 0;
  std::int64_t base = -1;
  std::uint32_t base_crc = 0;
  std::uint32_t crc = 0;
  bool consistent = true;
};

Candidate candidate_of(FileSystem& files, const std::string& folder, std::int64_t step) {
  const Generation generation(files, folder + "/" + folder_name(FolderKind::kComplete, step));
  const Manifest& manifest = generation.manifest();
  if (manifest.step != step) {
    fail_run(fmt::format("{}: its manifest is of step {}", generation.path(), manifest.step));
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

std::string move_aside(FileSystem& files, const std::string& folder, std::int64_t step) {
  std::string from = folder + "/" + folder_name(FolderKind::kComplete, step);
  std::string to = folder + "/" + folder_name(FolderKind::kRejected, step);
  try {
    remove_tree(files, to);
    files.rename(from, to);
    files.sync_directory(folder);
    return to;
  } catch (const FileError&) {
    // On a medium that cannot be written the generation is passed over all the same.
    return from;
  }
}

// What a crash left of saves and removals.
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
  // Whoever made the folder may have died before its name was durable.
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

void CheckpointStore::verify(std::int64_t step) const {
  std::int64_t base = step;
  std::uint32_t expected = 0;
  for (bool first = true; base >= 0; first = false) {
    Generation generation(files_, folder_ + "/" + folder_name(FolderKind::kComplete, base));
    if (generation.manifest().step != base) {
      fail_run(fmt::format("{}: its manifest is of step {}", generation.path(), generation.manifest().step));
    }
    if (!first && generation.manifest_crc() != expected) {
      fail_run(fmt::format(
          "{} is not the base that step {} was built on: manifest CRC-32C {:08x}, expected {:08x}",
          generation.path(), step, generation.manifest_crc(), expected));
    }
    generation.verify();
    base = generation.manifest().base;
    expected = generation.manifest().base_crc;
  }
}

RestorePoint CheckpointStore::recover(bool consistent_only) {
  RestorePoint point;
  if (!files_.exists(folder_)) return point;
  try {
    remove_leftovers(files_, folder_);
  } catch (const FileError&) {
    // Left-overs are never read; a medium that cannot be written can still be restored from.
  }
  const auto reject = [&](std::int64_t step, const std::string& reason) {
    point.rejected.push_back({step, reason, move_aside(files_, folder_, step)});
  };
  std::vector<Candidate> candidates;
  for (const std::int64_t step : generations()) {
    try {
      candidates.push_back(candidate_of(files_, folder_, step));
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      reject(step, error.what());
    }
  }
  newest_first(candidates);
  for (const Candidate& candidate : candidates) {
    if (consistent_only && !candidate.consistent) continue;
    try {
      verify(candidate.step);
      point.step = candidate.step;
      break;
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      reject(candidate.step, error.what());
    }
  }
  return point;
}

std::vector<std::int64_t> CheckpointStore::collect_garbage() {
  std::vector<Candidate> candidates;
  for (const std::int64_t step : generations()) {
    try {
      candidates.push_back(candidate_of(files_, folder_, step));
    } catch (const Error& error) {
      // Which bases an unreadable one needs is not known, so nothing may go.
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
    // What it replaced may still stand, and recover() would take it for the generation of this step.
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
