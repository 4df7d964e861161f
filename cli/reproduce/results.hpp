// Every number of a study's table, computed once: the Markdown, the JSON and the figure only print these.
#pragma once

#include "ab/analysis.hpp"
#include "ab/run_record.hpp"
#include "ab/statistics.hpp"
#include "reproduce/decoding.hpp"
#include "reproduce/differences.hpp"
#include "reproduce/plan.hpp"
#include "reproduce/stage_results.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// One run: its record, or why there is none.
struct RunResult {
  std::int64_t seed = 0;
  std::string status;           ///< completed, interrupted, failed, diverged, missing
  std::string reason;           ///< if the status is not completed
  std::optional<double> value;  ///< of the study's metric; only of completed runs, finite
  std::optional<ab::RunRecord> record;
  std::vector<StageResult> stages;  ///< of a run in stages
};

struct Share {
  std::string metric;             ///< "train/mor/share"
  std::optional<double> percent;  ///< mean over the runs
};

/// Format decisions for one operand of one layer, mean over the runs.
struct Decision {
  std::string layer, operand;  ///< "h.1.attn.q_proj", "dgrad.dy"
  double percent = 0;          ///< in the small format
  double error_percent = 0;    ///< mean relative error of that format
};

struct ArmResult {
  std::vector<RunResult> runs;  ///< in the order of the seeds
  std::optional<ab::MeanEstimate> value;
  std::vector<double> gaps;  ///< to the baseline, per pair, per cent; negative = worse
  std::optional<ab::MeanEstimate> gap, reference_gap;  ///< empty for the arm itself and without pairs
  std::string parameters;                              ///< "840960"
  double updates = 0, samples = 0, tokens = 0;         ///< of a completed run, mean
  double bytes = 0;                                    ///< gradients and weights sent by rank 0, mean
  double refused = 0;                                  ///< updates refused, mean
  std::optional<ab::MeanEstimate> wall_s;
  std::map<std::string, double> operands;  ///< quantized, by format, mean
  std::vector<Share> shares;               ///< in the order of the study's `shares`
  std::vector<Decision> decisions;         ///< by layer and operand
};

/// Machine, program and command of the runs.
struct Provenance {
  std::string command;                                           ///< that was given last
  std::vector<std::string> program, machines, kernels, threads;  ///< distinct values over all runs
  std::string model, data;
  std::string begun, ended;  ///< of the first and the last run, UTC
  double wall_s = 0;         ///< of all runs together
  int jobs = 1;
  std::vector<std::string> simulated;  ///< columns that are
  std::string simulation;              ///< the data, if the study made it; else ""
};

/// A column of [[evaluate]].
struct Column {
  OtherData data;
  std::vector<std::vector<std::optional<double>>> values;  ///< by arm and seed; empty = not measured
};

/// Result of an [[agree]] entry.
struct Agreement {
  AgreeingPair pair;
  std::optional<double> largest;  ///< |arm - with| / |with|, over all updates and seeds; empty without any
  std::int64_t seed = 0, update = 0;  ///< where it is
  std::size_t seeds = 0;              ///< that both arms have
};

struct ArmVerdict {
  std::string arm;
  ab::Verdict verdict;  ///< against its baseline
};

/// What a study's kind computed from its runs beside the numbers of arms.
struct KindNumbers {
  virtual ~KindNumbers() = default;
};

struct StudyResult {
  StudyFile study;
  Size size;
  std::vector<ArmResult> arms;  ///< none where nothing is trained
  Provenance provenance;
  std::vector<std::string> warnings;           ///< missing runs and excluded pairs, with the reason
  bool complete = false;                       ///< every run ended as the study expects
  std::shared_ptr<const KindNumbers> numbers;  ///< null where the kind has none of its own
  std::vector<Column> columns;                 ///< of [[evaluate]]
  std::vector<Agreement> agreements;
  std::vector<ArmVerdict> verdicts;
  std::vector<DifferenceResult> differences;  ///< of [[compare]]
  std::vector<Decoding> decodings;            ///< of [decode]

  /// The kind's numbers, which must be there and be `Numbers`.
  template <typename Numbers>
  const Numbers& as() const {
    return dynamic_cast<const Numbers&>(*numbers);
  }
};

/// Reads all runs of the plan below `folder`.
StudyResult read_results(const StudyFile& study, const Size& size, const Plan& plan,
                         const std::string& folder);

/// "840960" of the fact "parameters: 840960 trained, ..."; "" without it.
std::string parameters_of(const ResolvedRun& run);

/// Mean with its interval; empty without values.
std::optional<ab::MeanEstimate> estimate(const std::vector<double>& values, double alpha);

/// The paper's sign: (baseline - arm) / baseline in per cent where lower is better, so that negative is
/// worse.
double gap_percent(double baseline, double arm, bool lower_is_better);

/// Metrics that the newest checkpoint of the attempt in `run` has under `sets`, by name: the output of `tenon
/// evaluate`. Throws Error.
using Evaluator = std::function<std::map<std::string, double>(const std::string& run,
                                                              const std::vector<std::string>& sets)>;

/// Fills StudyResult::columns from the entries of [[evaluate]] at this size, run by run. An entry that cannot
/// be measured is a warning, and the study is not complete.
void read_columns(StudyResult& result, const Evaluator& evaluate);

/// Fills StudyResult::agreements. If a line of metrics is missing after one of the updates in either run,
/// there is no value, and a warning says so.
void read_agreements(StudyResult& result);

/// Fills StudyResult::verdicts with the rule and the words of `tenon ab`, per baseline, so that p-values are
/// adjusted for the number of its arms. Nothing without a margin.
void read_verdicts(StudyResult& result, const ab::Experiment& experiment);

}  // namespace tenon::reproduce
