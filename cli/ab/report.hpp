// The two reports of a study. Both print what analysis.hpp computed and compute nothing of their own.
#pragma once

#include "ab/analysis.hpp"

#include <optional>
#include <string>

namespace tenon::ab {

/// Every number of the study as indented JSON; NaN and infinity are null.
std::string report_json(const StudyResult& result);

/// One HTML page: inline SVG and style, no network, no script.
std::string report_html(const StudyResult& result);

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
