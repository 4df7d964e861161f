// An experiment of two arms from a run and the changes that somebody proposes for it.
#pragma once

#include <string>
#include <vector>

namespace tenon::ab {

/// The text of an experiment: `base` as it is against `base` with `changes` ("a.b=c"), sequential, each run
/// as long as run.steps of the base. `sets` change values of the experiment, e.g. "sequential.max_seeds=30";
/// budget.* replaces the budget. Throws Error(kConfig).
std::string proposal_text(const std::string& base, const std::vector<std::string>& changes,
                          const std::vector<std::string>& sets);

/// Writes DIR/experiment.toml and returns its path. An empty folder: out/propose-<digest of the text>, which
/// is then set. Throws Error(kConfig) if another proposal is there, unless `replace`.
std::string write_proposal(const std::string& text, std::string& folder, bool replace);

}  // namespace tenon::ab
