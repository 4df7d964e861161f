// The rule of decision and its texts; see analysis.hpp.
#include "ab/analysis.hpp"
#include "ab/format.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::ab {
namespace {

std::string percent(double share) {
  return fmt::format("{:.4g}%", 100 * share);
}

const char* pairs_word(std::size_t n) {
  return n == 1 ? "pair" : "pairs";
}

std::string detectable_sentence(const Experiment& e, const Comparison& c, int decimals) {
  const std::size_t n = c.primary.differences.size();
  if (n >= 2 && !c.primary.t_test.defined()) {
    return "Every pair has the same difference. A sample without spread has no t test and no interval: the "
           "exact test decides. Spread as small as this is unusual; check that the seeds change the runs.";
  }
  if (n < 2) return "One pair has no spread: no difference, however large, can be told from noise.";
  return fmt::format(
      "With {} {} the smallest true difference that is found with {} power is {} paired standard deviations, "
      "here {} in {}.",
      n, pairs_word(n), percent(e.power), fixed(c.detectable_sd, 2), fixed(c.detectable_effect, decimals),
      e.metric);
}

void add_exact_caution(const Experiment& e, const Comparison& c, std::vector<std::string>& out) {
  const bool t_rejects = c.primary.t_test.p <= e.alpha;
  const bool exact_rejects = c.primary.sign_flip.p <= e.alpha;
  if (c.smallest_sign_flip_p > e.alpha) {
    out.push_back(
        fmt::format("With {} {} the exact test cannot fall below {}, so it can never confirm a difference at "
                    "{}{}.",
                    c.primary.differences.size(), pairs_word(c.primary.differences.size()),
                    p_text(c.smallest_sign_flip_p), e.alpha,
                    c.primary.t_test.defined() ? "; the t test relies on normal differences" : ""));
  } else if (c.primary.t_test.defined() && t_rejects != exact_rejects) {
    out.push_back(
        fmt::format("The t test ({}) and the exact sign-flip test ({}) disagree; read the per-seed values.",
                    p_text(c.primary.t_test.p), p_text(c.primary.sign_flip.p)));
  }
}

Verdict decide_by_target(const Experiment& e, const std::string& baseline, const std::string& other,
                         const Comparison& c) {
  Verdict out;
  const TargetComparison* t = target_on(c, e.budget.kind);
  if (t == nullptr) {
    out.outcome = Outcome::kInconclusive;
    out.headline =
        fmt::format("Inconclusive: time to target cannot be measured in {}.", axis_name(e.budget.kind));
    return out;
  }
  const bool significant = c.adjusted_log_rank_p <= e.alpha;
  const bool sooner = t->restricted_mean_difference < 0;
  out.outcome = !significant ? Outcome::kInconclusive : sooner ? Outcome::kBetter : Outcome::kWorse;
  if (significant) {
    out.headline = fmt::format("{} is {} than {}: it reaches {} = {} {} on average {}.", other,
                               sooner ? "better" : "worse", baseline, e.metric, compact(*e.target),
                               quantity(std::abs(t->restricted_mean_difference), e.budget.kind) +
                                   (e.budget.kind == Axis::kSeconds || e.budget.kind == Axis::kBytes
                                        ? ""
                                        : std::string(" ") + axis_name(e.budget.kind)),
                               sooner ? "sooner" : "later");
  } else {
    out.headline =
        fmt::format("Inconclusive: the times at which {} and {} reach {} = {} were not shown to differ.",
                    baseline, other, e.metric, compact(*e.target));
  }
  out.sentences.push_back(
      fmt::format("The target was reached in {} of {} runs of {} and in {} of {} runs of {}; log-rank {}.",
                  t->baseline_estimate.reached, t->baseline_estimate.n, baseline, t->other_estimate.reached,
                  t->other_estimate.n, other, p_text(c.adjusted_log_rank_p)));
  out.sentences.push_back("The log-rank test does not use the pairing, which makes it conservative here.");
  return out;
}

}  // namespace

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kBetter:
      return "better";
    case Outcome::kWorse:
      return "worse";
    case Outcome::kEquivalent:
      return "equivalent";
    case Outcome::kInconclusive:
      return "inconclusive";
    case Outcome::kIdentical:
      return "identical";
    case Outcome::kNone:
      return "none";
  }
  return "none";
}

Verdict decide(const Experiment& e, const std::string& baseline, const std::string& other,
               const Comparison& c) {
  const PairedMetric& m = c.primary;
  const std::size_t n = m.differences.size();
  Verdict out;
  if (m.ties == n && c.same_weights) {
    out.outcome = Outcome::kIdentical;
    out.headline = fmt::format("Identical: in every pair {} and {} ended with the same weights, bit for bit.",
                               baseline, other);
    out.sentences.push_back(
        "If the arms were meant to differ, the setting had no effect; check that it is active.");
    return out;
  }
  if (e.decide_by == DecideBy::kTimeToTarget) return decide_by_target(e, baseline, other, c);

  const int decimals = metric_decimals(m.difference, m.baseline_mean.mean);
  const std::string coverage = percent(1 - e.alpha);
  const std::string effect =
      n < 2 ? fmt::format("{} differs by {} (one pair)", e.metric, fixed_signed(m.difference.mean, decimals))
      : !m.t_test.defined()
          ? fmt::format("{} differs by {} in each of {} {}", e.metric,
                        fixed_signed(m.difference.mean, decimals), n, pairs_word(n))
          : fmt::format("{} differs by {} ({} interval {} to {}, {} {})", e.metric,
                        fixed_signed(m.difference.mean, decimals), coverage,
                        fixed_signed(m.difference.interval.low, decimals),
                        fixed_signed(m.difference.interval.high, decimals), n, pairs_word(n));
  const bool significant = n >= 2 && m.adjusted_p <= e.alpha;
  const bool improved = m.lower_is_better ? m.difference.mean < 0 : m.difference.mean > 0;
  const char* rule =
      deciding_test(e, m) == DecidingTest::kStudentT ? "paired t test" : "exact sign-flip test";

  if (c.equivalence && c.adjusted_equivalence_p <= e.alpha) {
    out.outcome = Outcome::kEquivalent;
    out.headline =
        fmt::format("{} and {} are equivalent within {}: {}.", other, baseline, compact(*e.margin), effect);
    out.sentences.push_back(
        fmt::format("Both one-sided tests reject a difference as large as the margin ({}).",
                    p_text(c.adjusted_equivalence_p)));
    if (significant) {
      out.sentences.push_back(
          fmt::format("A difference was found ({} {}), but it is smaller than what the margin calls "
                      "relevant.",
                      rule, p_text(m.adjusted_p)));
    }
  } else if (significant) {
    out.outcome = improved ? Outcome::kBetter : Outcome::kWorse;
    out.headline =
        fmt::format("{} is {} than {}: {}.", other, improved ? "better" : "worse", baseline, effect);
    out.sentences.push_back(fmt::format("Decided by the {}, {}.", rule, p_text(m.adjusted_p)));
  } else {
    out.outcome = Outcome::kInconclusive;
    out.headline =
        fmt::format("Inconclusive: no difference between {} and {} was shown, and none was ruled out: {}.",
                    other, baseline, effect);
    out.sentences.push_back(fmt::format("Decided by the {}, {}.", rule, p_text(m.adjusted_p)));
  }
  if (c.equivalence && out.outcome != Outcome::kEquivalent) {
    out.sentences.push_back(fmt::format("Equivalence within {} was not shown ({}).", compact(*e.margin),
                                        p_text(c.adjusted_equivalence_p)));
  }
  if (m.adjusted_p != deciding_p(e, m))
    out.sentences.push_back("p-values are adjusted for the number of arms (Holm).");
  out.sentences.push_back(detectable_sentence(e, c, decimals));
  add_exact_caution(e, c, out.sentences);
  return out;
}

}  // namespace tenon::ab
