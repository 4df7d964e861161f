// The verdict of a sequential study in words; see decide_sequentially in analysis.hpp.
#include "ab/analysis.hpp"
#include "ab/format.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::ab {
namespace {

std::string pairs_text(std::size_t n) {
  return fmt::format("{} {}", n, n == 1 ? "pair" : "pairs");
}

std::string effect_text(const Experiment& e, const SequentialResult& s, const PairedMetric& m, int decimals) {
  std::string out = fmt::format("{} differs by {}", e.metric, fixed_signed(m.difference.mean, decimals));
  const Evidence& last = s.course.looks.back();
  if (std::isfinite(last.interval.low)) {
    out += fmt::format(" ({} confidence sequence {} to {}, {})", coverage_text(s.alpha),
                       fixed_signed(last.interval.low, decimals), fixed_signed(last.interval.high, decimals),
                       pairs_text(m.differences.size()));
  } else {
    out += fmt::format(" ({})", pairs_text(m.differences.size()));
  }
  return out;
}

std::string process_name(SequentialMethod method) {
  return method == SequentialMethod::kSign ? "sign process" : "mixture for normal differences";
}

std::string needed_text(const Experiment& e, const SequentialResult& s) {
  const char* alpha = e.family ? "the question's level" : "alpha";
  return s.arms == 2 ? fmt::format("{} = 1 / {}", compact(1 / s.alpha), alpha)
                     : fmt::format("{} = {} / {}, {} shared by {} arms", compact(1 / s.alpha), s.arms - 1,
                                   alpha, e.family ? "which is" : alpha, s.arms - 1);
}

std::string present_evidence(const Experiment& e, const SequentialResult& s) {
  const Evidence& last = s.course.looks.back();
  std::string out = fmt::format("The e-value of a difference is {} after {}; {} would conclude.",
                                e_value(last.log_e), pairs_text(last.pairs), needed_text(e, s));
  if (last.log_e_above) {
    out += fmt::format(" Those of equivalence within {} are {} and {}.", compact(*e.margin),
                       e_value(*last.log_e_above), e_value(*last.log_e_below));
  }
  return out;
}

void add_undecided(const Experiment& e, const SequentialResult& s, std::vector<std::string>& out) {
  out.push_back(present_evidence(e, s));
  if (s.course.futile) {
    out.push_back(fmt::format(
        "Stopped as futile: {:.3g}% of continuations drawn from the pairs seen conclude by {}, fewer "
        "than the {:.3g}% that futility asks for.",
        100 * *s.course.chance, pairs_text(e.sequential->max_seeds), 100 * *e.sequential->futility));
  } else if (!s.course.ended(*e.sequential)) {
    out.push_back(fmt::format("The study is not over: {} of at most {}.", pairs_text(s.course.pairs),
                              e.sequential->max_seeds));
  }
  out.push_back(s.needed
                    ? fmt::format("At the present effect and deviation a conclusion takes about {} in all.",
                                  pairs_text(*s.needed))
                    : fmt::format("At the present effect and deviation {} do not conclude.",
                                  pairs_text(kFarthestPairs)));
}

}  // namespace

std::string e_value(double log_e) {
  const double log10_e = log_e / std::log(10.0);
  if (std::isinf(log_e)) return log_e > 0 ? "infinite" : "0";
  if (std::abs(log10_e) >= 5) return fmt::format("10^{:.0f}", log10_e);
  return fmt::format("{:.3g}", std::exp(log_e));
}

Verdict decide_sequentially(const Experiment& e, const std::string& baseline, const std::string& other,
                            const Comparison& c) {
  const PairedMetric& m = c.primary;
  const SequentialResult& s = *c.sequential;
  Verdict out;
  if (m.ties == m.differences.size() && c.same_weights) {
    out.outcome = Outcome::kIdentical;
    out.headline = fmt::format("Identical: in every pair {} and {} ended with the same weights, bit for bit.",
                               baseline, other);
    out.sentences.push_back(
        "If the arms were meant to differ, the setting had no effect; check that it is active.");
    return out;
  }
  if (s.course.looks.empty()) {
    out.outcome = Outcome::kUndecided;
    out.headline = fmt::format("Undecided: {} of the {} before the first look.",
                               pairs_text(m.differences.size()), e.sequential->first_look);
    return out;
  }
  const Evidence& last = s.course.looks.back();
  const std::string effect = effect_text(e, s, m, metric_decimals(m.difference, m.baseline_mean.mean));
  switch (s.course.conclusion) {
    case Conclusion::kEquivalent:
      out.outcome = Outcome::kEquivalent;
      out.headline =
          fmt::format("{} and {} are equivalent within {}: {}.", other, baseline, compact(*e.margin), effect);
      out.sentences.push_back(
          fmt::format("Both one-sided processes reject a difference as large as the margin: e-values {} and "
                      "{}, needed: {}.",
                      e_value(*last.log_e_above), e_value(*last.log_e_below), needed_text(e, s)));
      break;
    case Conclusion::kGreater:
    case Conclusion::kLess: {
      const bool improved = (s.course.conclusion == Conclusion::kLess) == m.lower_is_better;
      out.outcome = improved ? Outcome::kBetter : Outcome::kWorse;
      out.headline =
          fmt::format("{} is {} than {}: {}.", other, improved ? "better" : "worse", baseline, effect);
      out.sentences.push_back(fmt::format("Decided by the {}: e-value {}, needed: {}.",
                                          process_name(e.sequential->method), e_value(last.log_e),
                                          needed_text(e, s)));
      break;
    }
    case Conclusion::kNone:
      out.outcome = Outcome::kUndecided;
      out.headline =
          fmt::format("Undecided: no difference between {} and {} was shown, and none was ruled out: {}.",
                      other, baseline, effect);
      add_undecided(e, s, out.sentences);
      break;
  }
  out.sentences.push_back(
      e.sequential->method == SequentialMethod::kSign
          ? "The verdict holds under looking after every pair, if either sign of a difference is as likely "
            "under no effect; the confidence sequence assumes normal differences."
          : "Verdict and confidence sequence hold under looking after every pair, if differences are "
            "normal.");
  out.sentences.push_back(
      "The study looked at its pairs as they came, so p-values and intervals for a fixed number of pairs are "
      "not valid here.");
  return out;
}

}  // namespace tenon::ab
