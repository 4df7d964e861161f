// A study of `tenon reproduce` as its TOML file describes it: the claim of a paper, the arms that test it,
// and the sizes in which it can be run. Plain data; nothing is run here.
#pragma once

#include "ab/experiment.hpp"
#include "reproduce/decoding.hpp"
#include "reproduce/differences.hpp"

#include <tenon/options.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::reproduce {

class StudyKind;

/// The table [simulate]: `tenon simulate` makes DIR/simulation, and every run uses it as data.path.
struct DataSimulation {
  std::string config;              ///< of `tenon simulate`; absolute
  std::vector<std::string> set;    ///< "a.b=c", before those of the size
  std::vector<std::string> sizes;  ///< at which there is one; empty = all
};

/// An entry of [[evaluate]]: a column of metrics of trained weights on other data.
struct OtherData {
  std::string name;
  std::string metric;              ///< "val/relative_l2"
  std::vector<std::string> set;    ///< over the configuration of the run: other data, another grid
  std::vector<std::string> arms;   ///< that are measured; empty = all
  std::vector<std::string> sizes;  ///< at which they are; empty = all
};

/// An entry of [[agree]]: the difference of two arms over their first updates.
struct AgreeingPair {
  std::string arm, with;
  std::string metric;        ///< "train/loss"
  std::int64_t updates = 0;  ///< that are compared, each of which has a line of metrics
};

/// Whether a list contains `name`; an empty one contains all names.
bool says(const std::vector<std::string>& list, const std::string& name);

/// One size of a study: the length of its runs, and its other differences from the base.
struct Size {
  std::string name;  ///< "quick", "default", "full" or "cuda"
  std::int64_t steps = 0;
  std::vector<std::int64_t> seeds;
  std::vector<std::string> set;  ///< "a.b=c", before those of the arm
  double minutes = 0;            ///< of the whole study, measured or estimated; 0 = not known
  std::string machine;           ///< to which `minutes` belongs
  // Where the kind of study counts samples or tasks instead of `steps`, or has several points for an arm:
  std::int64_t samples = 0, measured_samples = 0;  ///< that every run uses, under either clock
  std::vector<std::int64_t> points;   ///< numbers of trainers, ranks or workers; empty = the study's
  std::vector<std::string> simulate;  ///< "a.b=c" over the study's simulation, after its own
};

struct StudyArm {
  ab::Arm arm;
  std::string title;            ///< for the table; the name if absent
  std::string note;             ///< what it keeps, or its purpose
  std::string metric;           ///< stands for the study's in this arm, where a run has it; "" for none
  std::string baseline;         ///< arm to which its gap is measured; itself: it is a baseline
  bool may_fail = false;        ///< a failed run is a result, and is not repeated
  std::int64_t steps_over = 1;  ///< divides the size's steps, for an arm whose slots hold more
  // For an arm at one point, where the kind of study has several for an arm of the file:
  std::string of;             ///< the arm of the file; "" everywhere else
  std::int64_t trainers = 0;  ///< or ranks, at this point
  std::size_t added = 0;      ///< number of its last sets that the point added
};

/// A number of the paper, shown beside ours.
struct PaperValue {
  std::string arm, what, source;
  double value = 0;  ///< in the units of the figure: gap or share in per cent; of curves the metric's own
};

/// Content of the figure.
enum class Figure { kGaps, kShares, kCurves, kBytes };

struct StudyFile {
  /// By the table that the file has: study_kind.hpp.
  std::shared_ptr<const StudyKind> kind;
  std::string name, path;
  std::string title, paper, question;
  std::string base;  ///< absolute
  std::string metric;
  bool lower_is_better = true;
  std::string baseline;   ///< arm to which gaps are measured, if an arm names no other
  std::string reference;  ///< a second one, "" for none
  Figure figure = Figure::kGaps;
  std::string figure_metric;        ///< of the curves
  std::vector<std::string> curves;  ///< arms whose curves are drawn; empty = the first six
  std::vector<std::string>
      shares;  ///< metrics between 0 and 1 that the table shows in per cent, "train/mor/share"
  std::string
      decisions;  ///< beginning of metrics "BEGINNING/layer/gemm.operand" and ".../error"; "" for none
  double alpha = 0.05;
  double margin = 0;  ///< differences of the metric that count as none; above 0 the table has verdicts
  std::vector<std::string> notes;
  std::vector<Size> sizes;  ///< in the order quick, default, full, cuda
  std::vector<StudyArm> arms;
  std::vector<PaperValue> paper_values;
  std::optional<DataSimulation> simulation;  ///< [simulate]
  std::vector<OtherData> evaluations;        ///< [[evaluate]]
  std::vector<AgreeingPair> agreements;      ///< [[agree]]
  std::vector<Difference> differences;       ///< [[compare]]
  std::optional<DecodeTable> decode;         ///< [decode]

  /// The study's kind, which must be `Kind`.
  template <typename Kind>
  const Kind& as() const {
    return dynamic_cast<const Kind&>(*kind);
  }
  /// Null if there is no such size or arm.
  const Size* size(const std::string& name) const;
  const StudyArm* arm(const std::string& name) const;
};

/// Reads and checks a study. Throws Error(kConfig) with file, line and column, one line per problem.
StudyFile read_study(const std::string& path);
/// Every table of such a file.
std::vector<config::TableSpecs> study_tables();

/// The studies found: those of the working directory's configs/studies, then those shipped. Sorted by name.
std::vector<std::string> find_studies();
/// The file of a study by name, or `name` itself if it ends in .toml. Throws Error(kConfig) with the nearest
/// name.
std::string study_path(const std::string& name);

/// The study at one size for the runner of A/B studies; arms in the order of the file.
ab::Experiment experiment_of(const StudyFile& study, const Size& size);

// Lists of a resolved table as vectors. (`Options` alone would be those of a study, where both are known.)
inline std::vector<std::string> texts_of(const tenon::Options& options, std::string_view name) {
  const auto texts = options.texts(name);
  return {texts.begin(), texts.end()};
}

inline std::vector<std::int64_t> integers_of(const tenon::Options& options, std::string_view name) {
  const auto list = options.integers(name);
  return {list.begin(), list.end()};
}

}  // namespace tenon::reproduce
