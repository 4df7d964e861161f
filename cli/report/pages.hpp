// Output of `tenon report` about runs: a page about one, a page about many, and the same facts as JSON. Pages
// are self-contained: inline SVG and style, no network; tables of many runs sort by a few lines of script.
#pragma once

#include "report/runs.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace tenon::report {

/// `model` is the drawing of the model's graph, or the reason why there is none; "" leaves the section out.
std::string run_page(const Run& run, const std::string& model = "");
/// `folder` is the title; `unreadable` lists what was left out, with reasons. `columns`: keys of the table
/// over seeds; none: those that differ.
std::string runs_page(const std::string& folder, const std::vector<Run>& runs,
                      const std::vector<std::string>& unreadable,
                      const std::vector<std::string>& columns = {});

/// NaN and infinity are null.
std::string run_json(const Run& run);
std::string runs_json(const std::string& folder, const std::vector<Run>& runs,
                      const std::vector<std::string>& unreadable);

/// Escaped, as <code>.
std::string code_html(std::string_view text);

/// "completed after 400 steps"
std::string status_text(const Run& run);

}  // namespace tenon::report
