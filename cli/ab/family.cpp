// Entering a family, answering, and the ledger's table; see family.hpp.
#include "ab/family.hpp"

#include "ab/ab.hpp"
#include "ab/factorial.hpp"
#include "ab/format.hpp"
#include "base/file_descriptor.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr double kLargestE = 1e300;  // e-values beyond it are written as this

/// One path for a folder, however it is written.
fs::path plain(const std::string& path) {
  const fs::path out = fs::weakly_canonical(fs::absolute(path)).lexically_normal();
  return out.has_filename() ? out : out.parent_path();
}

std::string relative_to(const std::string& folder, const std::string& ledger) {
  return plain(folder).lexically_relative(plain(ledger)).string();
}

Inquiry inquiry_of(const Experiment& asked, const FamilyRequest& request) {
  return {.question = asked.question,
          .experiment = asked.name,
          .file = asked.path,
          .folder = relative_to(request.folder, request.family),
          .digest = request.digest,
          .seeds = ranges_of(asked.seeds),
          .tuning = asked.tune ? ranges_of(asked.tune->seeds) : std::vector<SeedRange>{},
          .sequential = asked.sequential.has_value()};
}

/// The share that the study of a folder records; none if it has no study, one outside families, or a record
/// that cannot be read, which the next study there replaces.
std::optional<FamilyShare> recorded_share(const std::string& folder) {
  const std::string path = (fs::path(folder) / kStudyRecord).string();
  const std::optional<std::string> text = base::read_file(path);
  if (!text) return std::nullopt;
  try {
    return parse_study_record(*text, path).experiment.family;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The smallest level at which the experiment could conclude.
double smallest_level(const Experiment& e) {
  const double others = static_cast<double>(e.arms.size() - 1);
  const double n = static_cast<double>(e.seeds.size());
  if (!e.sequential) {
    const bool exact = e.decide_by == DecideBy::kFinalValue && e.test == DecidingTest::kSignFlip &&
                       !e.margin && e.factors.empty();
    return exact ? others * smallest_sign_flip_p(e.seeds.size()) : 0;
  }
  // A pair at most doubles the sign process, and the first says nothing. For normal differences the bound is
  // approached as they agree ever more closely.
  const double one_sided = e.sequential->method == SequentialMethod::kSign
                               ? (n - 1) * std::log(2.0)
                               : (n - 1) / 2 * std::log(n + 1) + std::log(2.0);
  // Two directions share the evidence of a difference; each side of equivalence has its own.
  return others * std::exp(-(e.margin ? one_sided : one_sided - std::log(2.0)));
}

void check_reach(const Experiment& asked, const Question& next, const std::string& family) {
  const double least = smallest_level(asked);
  if (next.level >= least) return;
  fail_config(fmt::format(
      "question {} of the family {} would get the level {:.3g}, and {} pairs conclude at {:.3g} or "
      "above, however clear they are; allow more pairs. Nothing is spent",
      next.index, family, next.level, asked.seeds.size(), least));
}

std::string product_text(const FamilyShare& f, double level) {
  const double factor =
      f.rule == LevelRule::kELond ? static_cast<double>(f.discoveries) + 1 : reshaped(f.discoveries + 1);
  return fmt::format("{:.3g} = {:.4g} \u00d7 {:.3g} \u00d7 {:.3g}", level, f.alpha, share_of(f.question),
                     factor);
}

std::string discoveries_text(std::size_t n) {
  return n == 0 ? "no discovery" : n == 1 ? "one discovery" : fmt::format("{} discoveries", n);
}

FamilyShare share_in(const Question& q, const LedgerBook& book, const std::string& family) {
  return {.ledger = plain(family).string(),
          .family = book.family,
          .question = q.index,
          .alpha = book.alpha,
          .discoveries = q.discoveries,
          .rule = q.rule};
}

/// Why a folder with runs may not become a question, or go on as another.
[[noreturn]] void refuse_folder(const FamilyRequest& request, const std::optional<FamilyShare>& there,
                                const LedgerBook& book) {
  const std::string advice =
      "--restart asks anew, as a new question with a share of its own, and keeps the runs in DIR/earlier";
  if (!there) {
    fail_config(
        fmt::format("{} holds runs from outside the family {}; a question enters its family before its first "
                    "run, or only those would enter that look promising. Name another --out, or: {}",
                    request.folder, request.family, advice));
  }
  if (there->family != book.family) {
    fail_config(fmt::format("{} is question {} of another family, {}; name that one, or another --out",
                            request.folder, there->question, there->ledger));
  }
  fail_config(fmt::format(
      "{} holds runs of question {} of the family {}, and the experiment, or a file that its arms "
      "extend, was edited since: its digest is now {}. Put the files as they were, or: {}",
      request.folder, there->question, request.family, request.digest, advice));
}

/// The question that the folder goes on with; null if a new one begins.
const Question* resumed(const FamilyRequest& request, const Inquiry& inquiry, const LedgerBook& book) {
  const std::optional<FamilyShare> there = recorded_share(request.folder);
  const bool ours = there && there->family == book.family;
  if (ours && there->question > book.questions.size()) {
    fail_run(fmt::format(
        "{} is question {} of the family {}, whose ledger has only {}: the ledger has lost lines. Put "
        "it back as it was",
        request.folder, there->question, request.family, book.questions.size()));
  }
  const Question* newest = book.find(inquiry.folder, inquiry.digest);
  const bool started = newest != nullptr && ours && there->question == newest->index;
  const bool holds_runs = fs::exists(fs::path(request.folder) / "runs");
  // A crash can come between the line of a new question and the first of its files: that question is used.
  if (request.restart) return newest != nullptr && !newest->answer && !started ? newest : nullptr;
  if (holds_runs && !started) refuse_folder(request, there, book);
  if (newest != nullptr && newest->answer && !holds_runs) {
    fail_config(fmt::format(
        "question {} of the family {} was answered at {}, and its runs are gone from {}; --restart "
        "asks anew, as a new question with a share of its own",
        newest->index, request.family, newest->answer->time, request.folder));
  }
  return newest;
}

std::string day_of(const std::string& time) {
  return time.size() >= 16 ? time.substr(0, 10) + " " + time.substr(11, 5) : time;
}

std::string answer_text(const Question& q) {
  if (!q.answer) return "open";
  if (q.answer->arms.size() == 1) return q.answer->arms.front().outcome;
  std::string out;
  for (const ArmAnswer& arm : q.answer->arms)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", arm.arm, arm.outcome);
  return out;
}

double levels_sum(const LedgerBook& book) {
  double sum = 0;
  for (const Question& q : book.questions) sum += share_of(q.index);
  return sum * book.alpha;
}

std::size_t open_questions(const LedgerBook& book) {
  return static_cast<std::size_t>(std::count_if(book.questions.begin(), book.questions.end(),
                                                [](const Question& q) { return !q.answer; }));
}

double next_level(const LedgerBook& book) {
  return level_of(book.alpha, book.questions.size() + 1, book.discoveries(), LevelRule::kELond);
}

/// One above every seed of the family.
std::int64_t unused_seed(const LedgerBook& book) {
  std::int64_t last = 0;
  for (const Question& q : book.questions) {
    for (const auto* ranges : {&q.asked.seeds, &q.asked.tuning}) {
      if (!ranges->empty()) last = std::max(last, ranges->back().last);
    }
  }
  return last + 1;
}

double finite_p(double p) {
  return std::isfinite(p) ? p : 1;
}

ArmAnswer answer_of(const Study& study, const Comparison& c) {
  ArmAnswer arm{.arm = study.arms[c.other].arm.name, .outcome = outcome_name(c.verdict.outcome)};
  const auto e_of = [](double log_e) { return std::min(std::exp(log_e), kLargestE); };
  if (!c.sequential) {
    const bool timed = study.experiment.decide_by == DecideBy::kTimeToTarget;
    arm.p = finite_p(timed ? c.adjusted_log_rank_p : c.primary.adjusted_p);
  } else if (!c.sequential->course.looks.empty()) {
    const Evidence& last = c.sequential->course.looks.back();
    arm.e = e_of(last.log_e);
    if (last.log_e_above) arm.e_equivalent = e_of(std::min(*last.log_e_above, *last.log_e_below));
  }
  return arm;
}

/// By arm; of a factorial study by main effect and interaction, whose p-values are adjusted together.
std::vector<ArmAnswer> answers_of(const StudyResult& result) {
  std::vector<ArmAnswer> out;
  if (!result.factorial) {
    for (const Comparison& c : result.comparisons) out.push_back(answer_of(result.study, c));
    return out;
  }
  const std::vector<Factor>& factors = result.study.experiment.factors;
  for (const MainEffect& effect : result.factorial->main) {
    out.push_back({.arm = level_text(factors[effect.factor], effect.level),
                   .outcome = outcome_name(effect.contrast.verdict.outcome),
                   .p = finite_p(effect.contrast.primary.adjusted_p)});
  }
  for (const Interaction& i : result.factorial->interactions) {
    out.push_back({.arm = interaction_text(factors, i),
                   .outcome = reading_name(i.reading),
                   .p = finite_p(i.contrast.primary.adjusted_p)});
  }
  return out;
}

}  // namespace

bool enter_family(Experiment& asked, const FamilyRequest& request) {
  const auto say = [&](const std::string& line) {
    if (request.say) request.say(line);
  };
  Ledger ledger(request.family, asked.alpha);
  if (!ledger.repaired().empty()) say(ledger.repaired());
  const Inquiry inquiry = inquiry_of(asked, request);
  const Question* question = resumed(request, inquiry, ledger.book());
  const bool goes_on = question != nullptr;
  if (!goes_on) {
    if (const Question* earlier = ledger.book().find(inquiry.folder, inquiry.digest)) {
      say(fmt::format(
          "--restart asks question {} anew, as a new question; the share of question {} stays spent",
          earlier->index, earlier->index));
    }
    const Question next = ledger.book().next(inquiry);
    check_reach(asked, next, request.family);
    if (const Question* earlier = ledger.book().user_of(inquiry.seeds); earlier && inquiry.sequential) {
      say(fmt::format(
          "seeds {} were used by question {}, too, so the level is the lesser one for dependent "
          "evidence; with seeds from {} on it would be {:.3g}",
          ranges_text(inquiry.seeds), earlier->index, unused_seed(ledger.book()), next_level(ledger.book())));
    }
    question = &ledger.begin(inquiry);
  }
  asked.family = share_in(*question, ledger.book(), request.family);
  asked.alpha = question->level;
  say(fmt::format("question {} of the family {} {}: level {}", question->index, request.family,
                  question->answer ? "is answered"
                  : goes_on        ? "goes on"
                                   : "begins",
                  product_text(*asked.family, asked.alpha)));
  return question->answer.has_value();
}

void refuse_outside_family(const std::string& folder) {
  const std::optional<FamilyShare> there = recorded_share(folder);
  if (!there) return;
  fail_config(fmt::format(
      "{} is question {} of the family {}; go on with --family {}, or name another --out: outside "
      "it the question would have another level",
      folder, there->question, there->ledger, there->ledger));
}

void record_answer(const StudyResult& result) {
  const FamilyShare& share = *result.study.experiment.family;
  Ledger ledger(share.ledger, share.alpha);
  ledger.answer(share.question, {.arms = answers_of(result), .discovery = false, .time = ""});
}

void check_repeated(const StudyResult& result) {
  const FamilyShare& share = *result.study.experiment.family;
  const LedgerBook book = read_ledger(share.ledger);
  const std::vector<ArmAnswer> now = answers_of(result);
  const std::vector<ArmAnswer>& then = book.questions.at(share.question - 1).answer.value().arms;
  const bool same = now.size() == then.size() && std::equal(now.begin(), now.end(), then.begin(),
                                                            [](const ArmAnswer& a, const ArmAnswer& b) {
                                                              return a.arm == b.arm && a.outcome == b.outcome;
                                                            });
  if (same) return;
  fail_run(fmt::format(
      "{}: the runs there do not give the verdict that the ledger {} holds for question {}; put them "
      "back as they were",
      result.study.folder, Ledger::path_of(share.ledger), share.question));
}

bool is_discovery(const StudyResult& result) {
  const std::vector<ArmAnswer> answers = answers_of(result);
  return std::any_of(answers.begin(), answers.end(), claims_difference);
}

std::string family_sentence(const Experiment& e) {
  const FamilyShare& f = *e.family;
  const char* why = f.rule == LevelRule::kELond ? "e-LOND"
                    : e.sequential ? "e-LOND, reshaped because an earlier question used its seeds"
                                   : "e-LOND, reshaped for p-values";
  return fmt::format(
      "Question {} of the family {} has the level {}: its share of alpha, with {} before it ({}). The share "
      "of false ones that is expected among all discoveries of the family is at most {:.4g}.",
      f.question, f.ledger, product_text(f, e.alpha), discoveries_text(f.discoveries), why, f.alpha);
}

std::string ledger_table(const std::string& folder) {
  const LedgerBook book = read_ledger(folder);
  std::vector<std::vector<std::string>> rows{
      {"", "begun (UTC)", "digest", "alpha_t", "verdict", "discovery", "question"}};
  for (const Question& q : book.questions) {
    rows.push_back({fmt::format("{}", q.index), day_of(q.time), q.asked.digest.substr(0, 8),
                    fmt::format("{:.3g}", q.level), answer_text(q),
                    q.answer ? (q.answer->discovery ? "yes" : "no") : "",
                    q.asked.question.empty() ? q.asked.experiment : q.asked.question});
  }
  std::string out = text_table(rows);
  out +=
      fmt::format("{} {}, {}, {} open; {:.3g} of alpha = {:.4g} is shared out.\n", book.questions.size(),
                  book.questions.size() == 1 ? "question" : "questions", discoveries_text(book.discoveries()),
                  open_questions(book), levels_sum(book), book.alpha);
  out += fmt::format("The next question with looks gets the level {:.3g} on seeds from {} on.\n",
                     next_level(book), unused_seed(book));
  if (!book.unfinished.empty())
    out += "The last line is unfinished: a process is writing it, or a crash cut it.\n";
  return out;
}

std::string ledger_line(const std::string& folder) {
  const LedgerBook book = read_ledger(folder);
  ordered_json questions = ordered_json::array();
  for (const Question& q : book.questions) {
    ordered_json arms = nullptr;
    if (q.answer) {
      arms = ordered_json::array();
      for (const ArmAnswer& a : q.answer->arms) {
        arms.push_back({{"arm", a.arm},
                        {"verdict", a.outcome},
                        {"e", a.e ? ordered_json(*a.e) : ordered_json(nullptr)},
                        {"p", a.p ? ordered_json(*a.p) : ordered_json(nullptr)}});
      }
    }
    questions.push_back(
        {{"question", q.index},
         {"id", q.id},
         {"experiment", q.asked.experiment},
         {"folder", q.asked.folder},
         {"digest", q.asked.digest},
         {"begun", q.time},
         {"rule", kLevelRules.name(q.rule)},
         {"level", q.level},
         {"answered", q.answer ? ordered_json(q.answer->time) : ordered_json(nullptr)},
         {"arms", arms},
         {"discovery", q.answer ? ordered_json(q.answer->discovery) : ordered_json(nullptr)}});
  }
  const ordered_json out{{"family", book.family},
                         {"alpha", book.alpha},
                         {"discoveries", book.discoveries()},
                         {"open", open_questions(book)},
                         {"shared_out", levels_sum(book)},
                         {"next_level", next_level(book)},
                         {"next_seed", unused_seed(book)},
                         {"questions", questions}};
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tenon::ab
