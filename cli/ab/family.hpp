// Studies in a family of questions: what one asks of the ledger before its first run, and tells it at the
// end; the ledger as text. ledger.hpp has the rule and the file.
#pragma once

#include "ab/analysis.hpp"
#include "ab/ledger.hpp"

#include <functional>
#include <string>

namespace tenon::ab {

struct FamilyRequest {
  std::string family;    ///< folder of the ledger
  std::string folder;    ///< of the study
  std::string digest;    ///< of its plan, before it has a level
  bool restart = false;  ///< asks anew, as a new question
  std::function<void(const std::string& line)> say = {};
};

/// Gives `asked` its place in the family and its level: those of the question that its folder has begun, or
/// of a new one, whose line is on the disk when this returns. Returns whether the question is answered, so
/// that its verdict can only be repeated. Throws Error(kConfig) without spending anything for another alpha,
/// for a folder with runs of another question or from outside the family, and where no number of pairs that
/// the experiment allows could reach the level.
bool enter_family(Experiment& asked, const FamilyRequest& request);

/// Throws Error(kConfig) if the folder holds a study of a family and is to be run outside it.
void refuse_outside_family(const std::string& folder);

/// Writes the verdict of a study in a family to its ledger. The study has comparisons.
void record_answer(const StudyResult& result);

/// Throws Error(kRun) unless the ledger holds this verdict of the study.
void check_repeated(const StudyResult& result);

/// Whether an arm, or a main effect, is better or worse.
bool is_discovery(const StudyResult& result);

/// Where the level of a study in a family comes from, and what it is for, in two sentences.
std::string family_sentence(const Experiment& experiment);

/// The ledger for readers, and as one line of JSON.
std::string ledger_table(const std::string& folder);
std::string ledger_line(const std::string& folder);

}  // namespace tenon::ab
