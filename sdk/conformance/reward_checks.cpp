// Checks of contract reward/1: a pure function of the sample, from any thread, with finite parts whose names
// are the same for all samples; what a reward cannot score is an error.
#include "subject.hpp"

#include <tenon/error.hpp>
#include <tenon/reward.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

namespace tenon::conformance {
namespace {

using ScoredParts = std::vector<std::pair<std::string, double>>;

class CollectedParts final : public RewardParts {
 public:
  void add(std::string_view name, double value) override { parts.emplace_back(name, value); }
  ScoredParts parts;
};

/// What became of a sample: its parts, or the text of an error that the contract allows.
struct RewardOutcome {
  ScoredParts parts;
  std::string error;
};

Value usual_sample() {
  return parse_value(
      "{answer = \"42\", check = \"number\", expression = \"6 * 7\", terms = [40, 2], list = [3, 1, 2], "
      "asked = true}",
      {});
}

/// The samples of the case, or answers of every kind to a prompt with fields that usual rewards read.
std::vector<RewardCase> samples_of(Subject& subject) {
  if (!subject.given().samples.empty()) return subject.given().samples;
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) every_byte.push_back(static_cast<char>(byte));
  std::vector<RewardCase> all;
  for (const std::string& answer :
       {std::string("42"), std::string("The answer is 42."), std::string("<think>6 * 7</think> 42"),
        std::string(), std::string("-1e999"), std::string("1, 2, 3"),
        std::string("4") + std::string(1, '\0') + "2", every_byte, std::string(20000, '9'),
        std::string(20000, '(')})
    all.push_back({"What is 6 * 7?", answer, usual_sample()});
  return all;
}

RewardOutcome score(const Reward& reward, const RewardCase& given) {
  CollectedParts collected;
  try {
    reward.score({given.prompt, given.answer, &given.sample}, collected);
    return {std::move(collected.parts), ""};
  } catch (const Error& error) {
    return {{}, error.what()};
  }
}

std::string shown(const RewardCase& given) {
  const std::string answer = given.answer.size() <= 60 ? given.answer : given.answer.substr(0, 60) + "...";
  return fmt::format("answer {} to prompt {}", Value(answer).inline_toml(),
                     Value(given.prompt).inline_toml());
}

std::string shown(const RewardOutcome& outcome) {
  if (!outcome.error.empty()) return "the error: " + outcome.error;
  std::string text = "the parts";
  for (const auto& [name, value] : outcome.parts) text += fmt::format(" {} = {}", name, value);
  return text;
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

bool same_outcome(const RewardOutcome& a, const RewardOutcome& b) {
  return a.error == b.error && std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(),
                                          [](const auto& left, const auto& right) {
                                            return left.first == right.first &&
                                                   same_bits(left.second, right.second);
                                          });
}

/// Samples with their outcomes, at least one of which is a score.
std::vector<std::pair<RewardCase, RewardOutcome>> scored(Subject& subject, const Reward& reward) {
  std::vector<std::pair<RewardCase, RewardOutcome>> all;
  bool any = false;
  for (RewardCase& given : samples_of(subject)) {
    RewardOutcome outcome = score(reward, given);
    any = any || outcome.error.empty();
    all.emplace_back(std::move(given), std::move(outcome));
  }
  if (!any) {
    not_applicable(
        fmt::format("it refuses every sample of the kit; write samples of its own in the case file. The "
                    "first refusal is {}",
                    all.front().second.error));
  }
  return all;
}

void scores_purely(Subject& subject) {
  const testing::Made<Reward> first = subject.make<Reward>(), second = subject.make<Reward>();
  const auto all = scored(subject, *first);
  for (std::size_t i = all.size(); i-- > 0;) {
    for (const Reward* reward : {&*first, &*second}) {
      const RewardOutcome again = score(*reward, all[i].first);
      if (!same_outcome(again, all[i].second)) {
        fail(fmt::format(
            "{}: {}, and when asked again, in reverse order or of another object, {}; a score may "
            "depend on the sample alone",
            shown(all[i].first), shown(all[i].second), shown(again)));
      }
    }
  }
}

void scores_on_any_thread(Subject& subject) {
  constexpr int kThreads = 4, kRounds = 400;
  const testing::Made<Reward> reward = subject.make<Reward>();
  const auto all = scored(subject, *reward);
  std::atomic<int> ready{0};
  std::atomic<std::size_t> wrong{all.size()};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      for (int round = 0; round < kRounds && wrong == all.size(); ++round) {
        const std::size_t i = static_cast<std::size_t>(round + t) % all.size();
        if (!same_outcome(score(*reward, all[i].first), all[i].second)) wrong = i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (wrong != all.size()) {
    fail(fmt::format("{}: alone {}, and something else while other threads call the same object",
                     shown(all[wrong].first), shown(all[wrong].second)));
  }
}

void parts_are_finite(Subject& subject) {
  const testing::Made<Reward> reward = subject.make<Reward>();
  for (const auto& [given, outcome] : scored(subject, *reward)) {
    for (const auto& [name, value] : outcome.parts) {
      if (!std::isfinite(value)) fail(fmt::format("{}: the part {} is {}", shown(given), name, value));
    }
  }
}

void names_every_part(Subject& subject) {
  const testing::Made<Reward> reward = subject.make<Reward>();
  std::vector<std::string> names;
  for (const auto& [given, outcome] : scored(subject, *reward)) {
    if (!outcome.error.empty()) continue;
    std::vector<std::string> found;
    for (const auto& [name, value] : outcome.parts) {
      if (name.empty()) fail(fmt::format("{}: a part has no name", shown(given)));
      found.push_back(name);
    }
    if (found.empty()) fail(fmt::format("{}: there is no part", shown(given)));
    std::sort(found.begin(), found.end());
    if (const auto twice = std::adjacent_find(found.begin(), found.end()); twice != found.end())
      fail(fmt::format("{}: the part {} is given twice", shown(given), *twice));
    if (names.empty()) names = found;
    if (found != names) {
      fail(fmt::format(
          "{}: {}, and an earlier sample had other names; give every part for every sample, 0 where it "
          "does not apply",
          shown(given), shown(outcome)));
    }
  }
}

void refuses_strange_samples(Subject& subject) {
  const testing::Made<Reward> reward = subject.make<Reward>();
  const RewardCase usual = samples_of(subject).front();
  std::vector<std::pair<std::string, Value>> strange{{"without fields", Value()}};
  for (const Member& member : usual.sample.table()) {
    for (const char* value : {"[]", "{}", "-1", "\"\"", "true"}) {
      Value sample = usual.sample;
      sample.set(member.key, parse_value(value, {}), {});
      strange.emplace_back(fmt::format("whose field {} is {}", member.key, value), std::move(sample));
    }
  }
  const auto attempt = [&](const std::string& what, const Value* sample) {
    try {
      CollectedParts collected;
      reward->score({usual.prompt, usual.answer, sample}, collected);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kRun)
        fail(fmt::format("a sample {}: expected a score or Error(kRun), found an error of another kind: {}",
                         what, error.what()));
    } catch (const std::exception& error) {
      fail(fmt::format("a sample {}: expected a score or Error(kRun), found an exception of another type: {}",
                       what, error.what()));
    }
  };
  attempt("that is not there", nullptr);
  for (const auto& [what, sample] : strange) attempt(what, &sample);
}

constexpr const char* kRewardKind = Reward::kKind;
constexpr Check kRewardChecks[] = {
    {"reward.is_pure", kRewardKind, "a score depends on the sample alone, in any order and of any object",
     scores_purely},
    {"reward.is_safe_on_any_thread", kRewardKind,
     "threads that score on one object get the scores of one thread", scores_on_any_thread},
    {"reward.stays_finite", kRewardKind, "every part is a finite number, whatever the answer",
     parts_are_finite},
    {"reward.names_its_parts", kRewardKind, "every sample has the same parts, each once", names_every_part},
    {"reward.refuses_by_error", kRewardKind,
     "a sample that lacks what is read is scored or refused, without a crash", refuses_strange_samples},
};

}  // namespace

std::span<const Check> reward_checks() {
  return kRewardChecks;
}

}  // namespace tenon::conformance
