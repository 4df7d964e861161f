// The files DIR/csv/NAME.csv beside a study's page, with the numbers of its drawings and more digits. The
// page links them, so that its own size does not grow with the runs.
#pragma once

#include "ab/analysis.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace tenon::ab {

struct CsvFile {
  std::string name;  ///< in DIR/csv
  std::string text;
};

/// Those that report_html links, and no others.
std::vector<CsvFile> csv_files(const StudyResult& result);

/// "curves-val_loss.csv" of "curves" and "val/loss".
std::string csv_name(std::string_view what, std::string_view of = "");

/// "train/loss" of "val/loss": its curves are drawn, too.
std::string training_metric(const std::string& metric);

/// Whether the curves of a metric have only the smallest and the largest value of each of 2,000 buckets.
bool curve_is_reduced(const Study& study, const std::string& metric);

}  // namespace tenon::ab
