// Losses are compared to the bit, and only where everything is as it was when they were recorded: a bound for
// other kernels or other numbers of threads would let the changes pass that single wrong weights make.
#include "run/canary.hpp"

#include "base/digests.hpp"

#include <tenon/error.hpp>
#include <tenon/precision.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

namespace tenon::train {
namespace {

/// Tables of the configuration on which a forward does not depend. Those that are left may change more than
/// one thing, so any change in them is another setting.
constexpr std::string_view kBesideForward[] = {"run",      "recovery", "observe", "optimizer",
                                               "schedule", "power",    "emulate", "fault",
                                               "plugins",  "evaluate", "init",    "transport"};

double loss_of(std::uint64_t sum, std::uint64_t count) {
  return std::bit_cast<double>(sum) / std::max(1.0, std::bit_cast<double>(count));
}

}  // namespace

Canary::Canary(const RankContext& rank, Trainer& trainer, Saves& saves, std::string nondeterminism)
    : rank_(rank), trainer_(trainer), saves_(saves), nondeterminism_(std::move(nondeterminism)) {
  saves_.on_end([this](std::int64_t slot, bool committed, int place) { save_ended(slot, committed, place); });
}

std::string Canary::idle_reason() const {
  const config::CoreSettings& settings = rank_.world.settings;
  if (!settings.recovery.canary) return "recovery.canary = false";
  if (settings.parallel.workers > 1)
    return fmt::format("{} workers update the same weights", settings.parallel.workers);
  if (!nondeterminism_.empty()) return nondeterminism_;
  if (rank_.parts.sync.declares(TENON_CAP_NONDETERMINISTIC))
    return fmt::format("sync '{}' changes weights while a slot begins", rank_.parts.sync.id());
  if (trainer_.on_policy() != nullptr)
    return fmt::format("data set '{}' draws its samples from the model", rank_.parts.dataset.id());
  if (trainer_.requests() != nullptr) return "rows of tables travel on request";
  if (rank_.parts.precision.offered<PrecisionMetrics>() != nullptr)
    return fmt::format("precision '{}' counts its choices, and would count these twice",
                       rank_.parts.precision.id());
  const bool communicates = trainer_.groups().all() != nullptr || trainer_.rows().sharded();
  if (communicates && rank_.world.clock->simulated())
    return "a forward that communicates takes simulated time";
  return "";
}

std::string Canary::facts() const {
  const config::CoreSettings& settings = rank_.world.settings;
  return fmt::format("ranks {}, grid {}, accumulate {}, batch {}, device {}, kernels {}, threads {}",
                     settings.parallel.ranks, settings.parallel.ranks_per_replica(), settings.run.accumulate,
                     rank_.parts.dataset->batch(), rank_.parts.device.id(),
                     rank_.parts.device->kernel_choice(), rank_.world.threads_per_rank());
}

const std::string& Canary::setting() {
  if (!setting_.empty()) return setting_;
  const config::RunSettings& run = rank_.world.settings.run;
  Value tables;
  for (const Member& member : rank_.world.checked.resolved.root().table()) {
    if (std::ranges::find(kBesideForward, member.key) == std::end(kBesideForward))
      tables.set(member.key, member.value, member.origin);
  }
  std::string text =
      fmt::format("{}\n{}\nsteps {}, seeds {} {} {}\n", facts(), rank_.parts.device->features(), run.steps,
                  run.seed, run.seed_order, run.seed_rounding);
  for (const auto& [key, value] : flatten(tables)) text += fmt::format("{} = {}\n", key, value);
  for (const LockedPlugin& plugin : rank_.world.loaded_plugins())
    text += fmt::format("plugin {} {} {}\n", plugin.id, plugin.version, plugin.sha256);
  Xxh3Stream digest;
  digest.update(std::as_bytes(std::span(text)));
  setting_ = digest.hex();
  return setting_;
}

std::string Canary::path(std::int64_t slot, int place) const {
  return fmt::format("{}/step-{}/{}", rank_.world.record.places->at(place).folder(), slot,
                     checkpoint::canary_name(rank_.index));
}

void Canary::before_slot(std::int64_t) {
  position_ = rank_.counters.position;
}

void Canary::after_slot(std::int64_t slot, const SlotResult& result) {
  if (saves_.newest_exact() != slot || result.kind != SlotKind::kGrad || !idle_reason().empty()) return;
  checkpoint::CanaryRecord record;
  record.slot = slot;
  record.position = position_;
  record.rank = rank_.index;
  record.loss_sum = std::bit_cast<std::uint64_t>(result.first_loss_sum);
  record.loss_count = std::bit_cast<std::uint64_t>(result.first_loss_count);
  record.setting = setting();
  record.facts = facts();
  pending_ = std::move(record);
  if (committed_ == slot) write();
}

void Canary::save_ended(std::int64_t slot, bool committed, int place) {
  if (committed) {
    committed_ = slot;
    place_ = place;
  }
  if (!pending_ || pending_->slot != slot) return;
  if (committed) {
    write();
  } else {
    pending_.reset();
  }
}

// A checkpoint without its canary is as good as one, so nothing that goes wrong here ends a run.
void Canary::write() {
  const checkpoint::CanaryRecord record = *std::exchange(pending_, std::nullopt);
  try {
    rank_.world.files->write_text_atomically(path(record.slot, place_), checkpoint::canary_text(record));
  } catch (const FileError& error) {
    rank_.host.log(LogLevel::kWarning,
                   fmt::format("the canary of the checkpoint of slot {} was not written: {}", record.slot,
                               error.what()));
  }
}

std::string Canary::incomparable_reason(const CheckpointReader& reader,
                                        std::optional<checkpoint::CanaryRecord>& record) {
  if (!reader.consistent()) return "its rows are of several slots";
  if (reader.encoded()) return "rows are stored in an encoding of the recovery policy";
  const auto trainers = static_cast<int>(rank_.world.settings.parallel.trainers());
  if (reader.world_size() != trainers)
    return fmt::format("it was saved by {} rank(s), and {} continue", reader.world_size(), trainers);
  const std::string file = path(reader.step(), rank_.world.start.restored_place);
  if (!rank_.world.files->exists(file))
    return fmt::format("rank {} recorded no loss after it: no slot ended there, or one without gradients",
                       rank_.index);
  record = checkpoint::parse_canary(read_text(*rank_.world.files, file, checkpoint::kMaxCanaryBytes), file);
  const std::string now = facts();
  if (record->setting != setting()) {
    return record->facts != now
               ? fmt::format("its loss was recorded with {}; now {}", record->facts, now)
               : "its loss was recorded with other settings of the model, its data or its precision, or with "
                 "other plugins";
  }
  if (record->position != rank_.counters.position)
    return fmt::format("its loss is of the batch at sample {}, and the run continues at {}", record->position,
                       rank_.counters.position);
  return "";
}

std::string Canary::contradiction(const CheckpointReader& reader) {
  std::optional<checkpoint::CanaryRecord> record;
  std::string why = idle_reason();
  if (why.empty()) why = incomparable_reason(reader, record);
  // A forward may communicate, so all ranks compute it, or none.
  for (const std::string& other : rank_.world.links.end_hub->exchange(rank_.index, why)) {
    if (other.empty()) continue;
    rank_.host.log(LogLevel::kInfo, fmt::format("checkpoint of slot {}: its canary was not compared: {}",
                                                reader.step(), other));
    return "";
  }
  const auto [sum, count] =
      trainer_.workers().front()->foresee_loss(rank_.weights.live(), reader.step(), rank_.counters.position);
  // Sites that keep a converted copy of weights have made it with state that was put back since.
  rank_.weights.live().touch(-1);
  rank_.lines.take();  // bytes of that pass are not the run's
  const auto sum_bits = std::bit_cast<std::uint64_t>(sum), count_bits = std::bit_cast<std::uint64_t>(count);
  std::string mine;
  if (sum_bits != record->loss_sum || count_bits != record->loss_count) {
    mine = fmt::format(
        "its canary differs on rank {}: the loss of the first micro-batch after slot {} is {:.9g} ({:a}); "
        "expected {:.9g} ({:a}), that of the run that saved it",
        rank_.index, reader.step(), loss_of(sum_bits, count_bits), sum,
        loss_of(record->loss_sum, record->loss_count), std::bit_cast<double>(record->loss_sum));
  }
  for (const std::string& other : rank_.world.links.end_hub->exchange(rank_.index, mine)) {
    if (!other.empty()) return other;
  }
  rank_.host.log(
      LogLevel::kInfo,
      fmt::format("checkpoint of slot {}: the loss of the next micro-batch is the recorded one, to "
                  "the bit",
                  reader.step()));
  return "";
}

}  // namespace tenon::train
