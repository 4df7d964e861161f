#include "record/witness_recorder.hpp"

#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace tenon::train {
namespace {

std::string_view phase_text(WitnessPhase phase) {
  switch (phase) {
    case WitnessPhase::kInput:
      return "input";
    case WitnessPhase::kOutput:
      return "output";
    case WitnessPhase::kGradient:
      return "gradient";
    case WitnessPhase::kWeight:
      return "weight";
    case WitnessPhase::kState:
      return "state";
    case WitnessPhase::kRound:
      break;
  }
  return "round";
}

}  // namespace

WitnessRecorder::WitnessRecorder(const RankContext& rank, Worker& worker, const Progress& progress)
    : rank_(rank), progress_(progress) {
  worker.attach(*this);
}

std::string WitnessRecorder::path_of(int rank) const {
  return rank_.world.record.folder.path + "/" + witness_file_name(rank);
}

void WitnessRecorder::start() {
  text_ = WitnessText(trim(rank_.index));
  if (rank_.index == 0) trim_others();
  FileSystem& files = *rank_.world.files;
  const bool fresh = !files.exists(path_of(rank_.index));
  file_ = files.append_to(path_of(rank_.index));
  const std::string header = WitnessText::header();
  if (fresh) file_->append(std::as_bytes(std::span(header)));
}

std::vector<WitnessName> WitnessRecorder::trim(int rank) {
  FileSystem& files = *rank_.world.files;
  const std::string path = path_of(rank);
  if (!files.exists(path)) return {};
  const std::string text = read_text(files, path, kLargestWitness);
  WitnessHead head = witness_head(text, path, progress_.first_slot);
  if (!head.damage.empty()) {
    rank_.host.log(LogLevel::kWarning,
                   fmt::format("what follows in the witness was dropped: {}", head.damage));
  }
  if (head.bytes == 0) {
    files.remove(path);
  } else if (head.bytes < text.size()) {
    files.truncate(path, static_cast<std::int64_t>(head.bytes));
  }
  return std::move(head.names);
}

void WitnessRecorder::trim_others() {
  for (auto rank = static_cast<int>(rank_.world.settings.parallel.trainers());
       rank_.world.files->exists(path_of(rank)); ++rank)
    trim(rank);
}

bool WitnessRecorder::wants(std::int64_t slot) {
  if (slot % rank_.world.settings.run.witness_every != 0) return false;
  text_.begin_slot(slot);
  return true;
}

bool WitnessRecorder::wants_outputs_of(std::string_view node) {
  return std::ranges::any_of(rank_.world.settings.run.witness_layers,
                             [node](const std::string& pattern) { return matches_pattern(pattern, node); });
}

void WitnessRecorder::add(const WitnessTensor& tensor, const std::string& digest) {
  text_.add(phase_text(tensor.phase), tensor.layer, tensor.name, tensor.micro, digest);
}

// One append per slot: a process that is killed between two of them leaves whole slots.
void WitnessRecorder::after_slot(std::int64_t, const SlotResult&) {
  if (text_.in_slot()) file_->append(std::as_bytes(std::span(text_.end_slot())));
}

}  // namespace tenon::train
