// The A/B study as one call: plan, run, read, analyse, report. The command `tenon ab` is a thin shell around
// it. The two reports print what analysis.hpp computed and compute nothing of their own.
#pragma once

#include "ab/analysis.hpp"
#include "ab/file_lock.hpp"
#include "ab/ladder_stage.hpp"
#include "ab/runner.hpp"

#include <optional>
#include <string>

namespace tenon::ab {

struct StudyOptions {
  std::string program;  ///< file of this program, e.g. /proc/self/exe resolved
  std::string folder;   ///< DIR; made if absent
  int jobs = 1;
  bool self_check = false;  ///< --aa: the first arm against itself
  bool restart = false;     ///< a sequential study begins anew; what there is goes to DIR/earlier
  std::string family = {};  ///< --family: folder of the ledger that gives the study its level; "" for none
  std::function<void(const std::string& line, bool finished)> progress = {};
  std::function<Config(const Config& run)> resolve = {};  ///< as RunnerOptions::resolve
  /// Counts the parameters of a configuration's model; for [ladder]. Throws Error(kConfig).
  std::function<ModelSize(const Config& run)> measure = {};
  bool keep_finished = false;  ///< a study without looks uses the runs that an earlier start has finished
};

struct StudyOutcome {
  StudyResult result;  ///< of a ladder: the study of its greatest size
  std::optional<LadderResult> ladder = {};
  RunnerResult runs;
  std::string report_html_path, report_json_path;
  int exit_status = 0;  ///< 0 with a verdict, 1 without
};

/// Writes DIR/experiment.json, makes all runs (of a sequential study those that its looks ask for), writes
/// DIR/report.json, DIR/report.html and DIR/csv. Failed runs end in a report without verdict, not in an
/// exception. A study in a family goes on from its finished runs; one that is answered makes none and repeats
/// its verdict. Throws Error(kConfig) for what is wrong before the first run, Error(kRun) if another process
/// works on the study.
StudyOutcome run_study(const Experiment& experiment, const StudyOptions& options);

/// Keeps two processes from working on one study: both would make the same runs, and each would read those of
/// the other half made. A lock on DIR/study.lock; readers of a study (`tenon report`) do not need it. Throws
/// Error(kRun), which names the folder, the process that holds the lock, and what to do.
FileLock lock_study(const std::string& folder);

/// Writes both reports again from a study's folder. Throws Error(kConfig) if it is none.
StudyOutcome report_study(const std::string& folder);

/// The experiment of a folder as its study began; see StudyRecord.
inline constexpr const char* kStudyRecord = "experiment.json";

/// True if the folder holds a study, i.e. an experiment.json.
bool is_study_folder(const std::string& folder);

/// Text that the command prints at the end: verdict, failures with their logs, path of the report.
std::string closing_text(const StudyOutcome& outcome);

/// The text of DIR/report.json.
std::string outcome_json(const StudyOutcome& outcome);

/// Every number of the study as indented JSON; NaN and infinity are null.
std::string report_json(const StudyResult& result);

/// One HTML page: inline SVG and style, no network, no script. It links the files of csv.hpp.
std::string report_html(const StudyResult& result);

/// The block of one verdict: word, headline, reasons.
std::string verdict_block(const Verdict& verdict);

/// Its section on tuning: basins, chosen settings, cost; "" without tuning.
std::string tuning_section(const StudyResult& result);

/// The page's style sheet.
extern const char* const kReportStyle;

/// DIR/experiment.json: the experiment as fixed before the first run, from which `tenon report` can write the
/// reports again. Reading throws Error(kRun) if the file is damaged.
struct StudyRecord {
  Experiment experiment;
  int jobs = 1;
  bool self_check = false;
};
std::string study_record_json(const StudyRecord& record);
StudyRecord parse_study_record(const std::string& text, const std::string& where);

}  // namespace tenon::ab
