#include "record/run_record.hpp"

#include "base/process_facts.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tenon::train {
namespace {

constexpr double kMetricsIntervalSeconds = 1.0;

}  // namespace

void RunRecord::open_store(const KeptPlaces& kept, const std::function<void(const char*)>& hook) {
  StoreOptions options;
  options.keep = std::max(2, kept.keep);
  options.hook = hook;
  store = std::make_unique<CheckpointStore>(files_, folder.path + "/checkpoints", options);
  const std::string owner = kept.beside.empty() ? "" : run_owner(files_, folder.path);
  places = std::make_unique<CheckpointPlaces>(files_, *store, kept.beside, owner, hook);
}

void RunRecord::open_metrics() {
  metrics = std::make_unique<MetricsWriter>(files_, folder.path + "/metrics.jsonl", kMetricsIntervalSeconds);
}

// Lines of slots that will be computed again go, as at a resume.
void RunRecord::go_back(std::int64_t slot) {
  metrics.reset();
  drop_metrics_after(files_, folder.path + "/metrics.jsonl", slot);
  open_metrics();
}

void RunRecord::begin_manifest(Manifest begun) {
  manifest = std::move(begun);
  manifest.segments.insert(manifest.segments.begin(), earlier_segments.begin(), earlier_segments.end());
  write_manifest(files_, folder.path, manifest);
}

void RunRecord::begins_at(std::int64_t slot) {
  if (manifest.segments.empty()) return;
  manifest.segments.back().first_step = slot;
  write_manifest(files_, folder.path, manifest);
}

void RunRecord::end_segment(const std::string& reason) {
  if (manifest.segments.empty()) return;
  manifest.segments.back().end = utc_now();
  manifest.segments.back().exit_reason = reason;
  write_manifest(files_, folder.path, manifest);
}

void RunRecord::count_fallbacks(std::span<const RejectedGeneration> rejected, std::int64_t to,
                                std::int64_t most) {
  if (recovery_log == nullptr) return;
  for (const RejectedGeneration& bad : rejected) {
    if (bad.step >= 0) recovery_log->fell_back(bad, to);  // a place that cannot be read is absent
  }
  const std::vector<DistrustedCheckpoint>& all = recovery_log->fallbacks();
  const auto had = static_cast<std::int64_t>(all.size());
  if (had <= most) return;
  std::vector<std::string> texts;
  for (const DistrustedCheckpoint& bad : all)
    texts.push_back(fmt::format("slot {} (now {}): {}", bad.slot, bad.path, bad.reason));
  fail_run(fmt::format(
      "{}: {} checkpoint(s) of this attempt could not be believed, and [recovery] fallbacks = {} allows {} "
      "older one(s) in their place:\n  {}\n{}, and nothing was trained from there. Look for the cause first: "
      "the "
      "disk, the memory, the processors or the devices of these machines. Then go on with a larger "
      "recovery.fallbacks (--resume --set recovery.fallbacks={}), or begin a new attempt without --resume",
      folder.path, had, most, most, fmt::join(texts, "\n  "),
      to < 0 ? std::string("No checkpoint is left")
             : fmt::format("The newest that is left is that of slot {}", to),
      had));
}

std::string RunRecord::newest_checkpoint_text() const {
  std::vector<std::int64_t> whole;
  try {
    if (places != nullptr) whole = places->generations();
  } catch (const Error&) {
    // The failure being reported matters more than an unreadable folder.
  }
  return whole.empty() ? "; there is no checkpoint yet"
                       : fmt::format("; the newest checkpoint is that of slot {}", whole.back());
}

}  // namespace tenon::train
