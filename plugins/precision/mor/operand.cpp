// Decisions of operand.hpp.
#include "operand.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::mor {

std::string reason_of(const Settings& settings, const Verdict& verdict) {
  const MorDecision& decision = verdict.decision;
  if (verdict.choice == kNvfp4)
    return fmt::format("NVFP4 error {:.4f} <= {}", verdict.fp4_error, settings.fp4_threshold);
  if (!decision.finite) return "not finite";
  if (settings.mode == MorMode::kTensor) {
    const bool falls_back = decision.tensor == MorChoice::kKeep;
    return fmt::format("error {:.4f} {} {}", decision.error, falls_back ? ">" : "<=", settings.threshold);
  }
  std::string text = "blocks:";
  for (int choice = 0; choice < 4; ++choice) {
    if (decision.blocks[choice] > 0)
      text += fmt::format(" {} {}", decision.blocks[choice], kChoiceNames[choice]);
  }
  return text;
}

Operand::Operand(MorOps& mor, QuantOps& quant, Elementwise& elementwise, const Settings& settings,
                 bool runs_down, bool square)
    : mor_(mor),
      quant_(quant),
      elementwise_(elementwise),
      settings_(settings),
      runs_down_(runs_down),
      square_(square) {
  const Partition& partition = settings.partition;
  spec_.block_rows = runs_down ? partition.along : partition.across;
  spec_.block_columns = runs_down ? partition.across : partition.along;
  spec_.strategy = settings.strategy;
  spec_.mode = settings.mode;
  spec_.threshold = settings.threshold;
  spec_.e2m3 = settings.e2m3;
}

void Operand::prepare(std::int64_t rows, std::int64_t columns, DType input) {
  spec_.rows = rows, spec_.columns = columns;
  spec_.input = input;
  Prepared made{rows, mor_.prepare(spec_), nullptr};
  blocks_ = std::max(blocks_, made.mor->blocks());
  scratch_ = std::max(scratch_, made.mor->scratch_bytes());
  if (settings_.fp4) {
    QuantizeSpec fp4;
    fp4.rows = rows, fp4.columns = columns;
    fp4.input = input;
    fp4.block_rows = square_ || runs_down_ ? 16 : 1;
    fp4.block_columns = square_ || !runs_down_ ? 16 : 1;
    made.fp4 = quant_.quantizer(fp4);
    scratch_ = std::max(scratch_, made.fp4->scratch_bytes());
  }
  prepared_.push_back(std::move(made));
}

Operand::Prepared& Operand::find(std::int64_t rows) {
  for (Prepared& prepared : prepared_) {
    if (prepared.rows == rows) return prepared;
  }
  fail_plugin(
      fmt::format("precision mor: an operand of {} rows was not announced: sites are called with their chunk "
                  "or with what is left of their rows",
                  rows));
}

Verdict Operand::run(TensorView x, TensorView values, TensorView choices, TensorView scratch) {
  Prepared& prepared = find(x.shape[0]);
  Verdict verdict;
  if (prepared.fp4 != nullptr) {
    QuantizeStats stats;
    QuantizeOutput out;
    out.values = values;
    const float amax = prepared.fp4->amax(x, scratch);
    const float scale = prepared.fp4->run(x, amax, {}, out, scratch, &stats);
    verdict.fp4_error = stats.relative_error;
    if (std::isfinite(scale) && stats.relative_error <= settings_.fp4_threshold) {
      elementwise_.scale(values, static_cast<double>(scale));
      elementwise_.fill(choices, kNvfp4);
      verdict.choice = kNvfp4;
      verdict.units[kNvfp4] = 1;
      return verdict;
    }
  }
  verdict.decision = prepared.mor->run(x, values, choices, scratch);
  const MorDecision& decision = verdict.decision;
  if (settings_.mode == MorMode::kTensor) {
    verdict.choice = static_cast<int>(decision.tensor);
    verdict.units[verdict.choice] = 1;
    return verdict;
  }
  std::copy_n(decision.elements, 4, verdict.units);
  verdict.choice = static_cast<int>(std::max_element(verdict.units, verdict.units + 4) - verdict.units);
  return verdict;
}

}  // namespace tenon::mor
