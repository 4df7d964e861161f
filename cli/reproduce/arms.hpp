// The kind of studies without a table of their own: every arm is trained once per seed, and a table compares
// the last values of a metric. Other kinds whose arms are trained start from it.
#pragma once

#include "reproduce/study_kind.hpp"

namespace tenon::reproduce {

/// Runs beside those of the study, in a folder of their own.
struct FurtherRuns {
  std::string label;  ///< of lines of progress
  std::string folder;
  Plan plan;
};

class Arms : public StudyKind {
 public:
  std::string_view table() const override { return ""; }
  void read(const Value& table) override {}
  void check(const StudyFile& study, Problems& problems) const override {}
  std::string size_text(const StudyFile& study, const Size& size) const override;

  /// Simulates data, trains, reads. The functions below say what is different in another kind.
  Outcome run(const StudyFile& study, const Size& size, const Request& request,
              ab::RunnerOptions runner) const override;

  std::string tables(const StudyResult& result) const override;
  std::string every_run(const StudyResult& result) const override;
  /// The paper's numbers; a kind adds its own.
  void json(JsonWriter& json, const StudyResult& result) const override;
  std::string figure(const StudyResult& result) const override;
  std::string lines(const StudyResult& result) const override;
  std::string legend(const StudyResult& result) const override;

 protected:
  /// The study with an arm per run, where one arm of the file is several. `folder`: of the study, as given.
  virtual StudyFile as_runs(const StudyFile& given, const Size& size, const std::string& folder) const {
    return given;
  }
  /// Throws Error(kConfig) before the first run if the kind cannot use the plan. `given`: as the file has it.
  virtual void check_plan(const StudyFile& given, const Size& size, const Plan& plan) const {}
  virtual std::vector<FurtherRuns> further_runs(const StudyFile& study, const Size& size, const Plan& plan,
                                                const ab::RunnerOptions& runner,
                                                const Resolver& resolve) const {
    return {};
  }
  /// Whether the run must have the machine alone: it is under the wall clock.
  virtual bool runs_alone(const StudyFile& study, const ab::Job& job) const { return false; }
  /// Computes the kind's numbers from the runs below `folder`.
  virtual void read_numbers(StudyResult& result, const Plan& plan, const std::string& folder) const {}

  /// The table of arms with gaps, and how to read it. `paper_column`: the paper's numbers are gaps as well;
  /// `papers_sign`: so is their sign.
  static std::string arms_table(const StudyResult& result, bool paper_column, bool papers_sign);
};

/// 1, 2 and 5 times powers of ten inside the range.
std::vector<double> log_ticks(double low, double high);

}  // namespace tenon::reproduce
