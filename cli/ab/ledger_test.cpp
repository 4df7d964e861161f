// The rule of the ledger, and its file: what it grants, what survives a crash or another process, what it
// refuses; then simulated projects of 50 questions, whose false discovery rate is counted.
#include "ab/ledger.hpp"

#include "ab/sequential.hpp"
#include "ab/statistics.hpp"
#include "ab/testing/synthetic_runs.hpp"

#include "test_paths.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/file.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <string>

namespace tenon::ab {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

Inquiry inquiry(const std::string& name, std::int64_t first_seed = 1, bool sequential = true) {
  return {.question = "Is " + name + " better?",
          .experiment = name,
          .file = "/plans/" + name + ".toml",
          .folder = "../" + name,
          .digest = std::string(24, '0') + fmt::format("{:08x}", std::hash<std::string>{}(name)&0xffffffffu),
          .seeds = {{first_seed, first_seed + 9}},
          .tuning = {},
          .sequential = sequential};
}

Answer answer(const std::string& outcome, double e) {
  return {.arms = {{.arm = "proposal", .outcome = outcome, .e = e}}, .discovery = false, .time = ""};
}

std::string ledger_folder(const std::string& name) {
  return testing::fresh_folder("ledger_" + name) + "/family";
}

std::string text_in(const std::string& folder) {
  return testing::read_text_file(Ledger::path_of(folder));
}

/// A ledger of three questions: a discovery, an open one, and one after the discovery.
std::string filled(const std::string& name) {
  const std::string folder = ledger_folder(name);
  Ledger ledger(folder, 0.05);
  ledger.begin(inquiry("first"));
  ledger.begin(inquiry("second", 100));
  ledger.answer(1, answer("better", 500));
  ledger.begin(inquiry("third", 200));
  return folder;
}

template <typename Body>
std::string error_of(Body&& body, ErrorKind kind = ErrorKind::kRun) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "";
}

TEST(LedgerRule, TheSharesOfAllQuestionsAddUpToOne) {
  double sum = 0;
  for (std::size_t t = 1; t <= 100'000; ++t) {
    sum += share_of(t);
    if (t == 1 || t == 50 || t == 100'000) {
      EXPECT_NEAR(sum, 1 - 1 / std::sqrt(static_cast<double>(t) + 1), 1e-11);
    }
  }
  EXPECT_NEAR(share_of(1), 1 - std::sqrt(0.5), 1e-15);
  EXPECT_GT(share_of(1'000'000'000), 0);
}

TEST(LedgerRule, ADiscoveryRaisesTheLevelsOfQuestionsThatBeginAfterIt) {
  EXPECT_DOUBLE_EQ(level_of(0.05, 7, 0, LevelRule::kELond), 0.05 * share_of(7));
  EXPECT_DOUBLE_EQ(level_of(0.05, 7, 3, LevelRule::kELond), 0.05 * share_of(7) * 4);
  EXPECT_DOUBLE_EQ(level_of(0.05, 7, 0, LevelRule::kReshaped), 0.05 * share_of(7) / 2);
  EXPECT_DOUBLE_EQ(level_of(0.05, 7, 2, LevelRule::kReshaped),
                   0.05 * share_of(7) * (1.0 / 2 + 1.0 / 3 + 1.0 / 4));
}

/// The worst that a p-value can do: the number r of discoveries, itself counted, is always the least with
/// which it is one. Then E[1{discovery} / r] = sum over r of (level(r) - level(r - 1)) / r, which must not
/// exceed the share of alpha. Without reshaping it exceeds it by the factor 1 + 1/2 + 1/3 + ...
TEST(LedgerRule, ReshapingHoldsWhereThePValueChoosesTheDiscoveries) {
  double worst_reshaped = 0, worst_plain = 0;
  for (std::size_t r = 1; r <= 2000; ++r) {
    const auto rise = [&](LevelRule rule) {
      return level_of(0.05, 3, r - 1, rule) - (r == 1 ? 0 : level_of(0.05, 3, r - 2, rule));
    };
    worst_reshaped += rise(LevelRule::kReshaped) / static_cast<double>(r);
    worst_plain += rise(LevelRule::kELond) / static_cast<double>(r);
  }
  EXPECT_LE(worst_reshaped, 0.05 * share_of(3));
  EXPECT_GT(worst_reshaped, 0.999 * 0.05 * share_of(3));
  EXPECT_GT(worst_plain, 8 * 0.05 * share_of(3));
}

json reference() {
  std::ifstream in(TENON_SOURCE_DIR "/tests/reference/ab_ledger.json");
  return json::parse(in);
}

TEST(LedgerReference, SharesAndReshapedFactors) {
  const json record = reference();
  for (const auto& [t, share] : record["shares"].items())
    EXPECT_NEAR(share_of(std::stoul(t)) / share.get<double>(), 1, 1e-14) << t;
  for (const auto& [r, factor] : record["reshaped"].items())
    EXPECT_NEAR(reshaped(std::stoul(r)) / factor.get<double>(), 1, 1e-14) << r;
}

/// 40 questions through a ledger, one by one and side by side.
TEST(LedgerReference, LevelsAndDiscoveries) {
  const json record = reference();
  const auto e_values = record["e_values"].get<std::vector<double>>();
  for (const json& play : record["plays"]) {
    const bool sequential = play["rule"] == "e-LOND";
    const auto after = play["answered_after"].get<std::size_t>();
    Ledger ledger(ledger_folder(fmt::format("play-{}-{}", sequential, after)), 0.05);
    for (std::size_t t = 1; t <= e_values.size() + after; ++t) {
      if (t <= e_values.size()) {
        const double level =
            ledger.begin(inquiry(fmt::format("q{}", t), static_cast<std::int64_t>(100 * t), sequential))
                .level;
        EXPECT_NEAR(level / play["levels"][t - 1].get<double>(), 1, 1e-13) << t;
      }
      if (t <= after) continue;
      const std::size_t answered = t - after;
      const double e = e_values[answered - 1];
      const bool found = e >= 1 / ledger.book().questions[answered - 1].level;
      Answer verdict = answer(found ? "better" : "undecided", e);
      if (!sequential) verdict.arms[0].p = 1 / e;
      ledger.answer(answered, verdict);
      EXPECT_EQ(ledger.book().questions[answered - 1].answer->discovery, play["discoveries"][answered - 1])
          << answered;
    }
  }
}

TEST(LedgerRule, RangesOfSeeds) {
  EXPECT_EQ(ranges_of({5, 3, 4, 9, 1}), (std::vector<SeedRange>{{1, 1}, {3, 5}, {9, 9}}));
  EXPECT_EQ(ranges_text(ranges_of({3, 4, 5, 9})), "3 to 5, 9");
  EXPECT_TRUE(ranges_of({}).empty());
}

TEST(Ledger, GrantsLevelsInOrderAndKeepsThem) {
  const std::string folder = filled("grants");
  const LedgerBook book = read_ledger(folder);
  ASSERT_EQ(book.questions.size(), 3u);
  EXPECT_EQ(book.alpha, 0.05);
  EXPECT_EQ(book.discoveries(), 1u);
  for (std::size_t t = 1; t <= 3; ++t) {
    const Question& q = book.questions[t - 1];
    EXPECT_EQ(q.index, t);
    // The second began before the first was answered: an open question counts as no discovery.
    EXPECT_EQ(q.discoveries, t == 3 ? 1u : 0u);
    EXPECT_DOUBLE_EQ(q.level, 0.05 * share_of(t) * (t == 3 ? 2 : 1));
  }
  EXPECT_TRUE(book.questions[0].answer->discovery);
  EXPECT_FALSE(book.questions[1].answer);
  EXPECT_EQ(book.find("../second", inquiry("second").digest)->index, 2u);
  EXPECT_EQ(book.find("../second", inquiry("first").digest), nullptr);
  EXPECT_EQ(ledger_text(book), text_in(folder));
}

TEST(Ledger, SharedSeedsAndPValuesGetTheReshapedLevel) {
  Ledger ledger(ledger_folder("seeds"), 0.05);
  EXPECT_EQ(ledger.begin(inquiry("a", 1)).rule, LevelRule::kELond);
  EXPECT_EQ(ledger.begin(inquiry("b", 11)).rule, LevelRule::kELond);
  EXPECT_EQ(ledger.begin(inquiry("c", 20)).rule, LevelRule::kReshaped);  // seed 20 is b's, too
  EXPECT_DOUBLE_EQ(ledger.book().questions.back().level, 0.05 * share_of(3) / 2);
  Inquiry tuned = inquiry("d", 100);
  tuned.tuning = {{500, 502}};
  EXPECT_EQ(ledger.begin(tuned).rule, LevelRule::kELond);
  EXPECT_EQ(ledger.begin(inquiry("e", 502)).rule, LevelRule::kReshaped);  // d has chosen its settings on it
  EXPECT_EQ(ledger.begin(inquiry("f", 700, false)).rule, LevelRule::kReshaped);
}

TEST(Ledger, AnAnswerMustBeCarriedByTheLevel) {
  Ledger ledger(ledger_folder("answers"), 0.05);
  const double level = ledger.begin(inquiry("a")).level;
  EXPECT_THAT(error_of([&] { ledger.answer(1, answer("better", 0.99 / level)); }),
              HasSubstr("which the level " + fmt::format("{}", level) + " of question 1 does not carry"));
  // Two arms share the level.
  Answer two = answer("worse", 1.5 / level);
  two.arms.push_back({.arm = "other", .outcome = "undecided", .e = 1.0});
  EXPECT_NE(error_of([&] { ledger.answer(1, two); }), "");
  two.arms[0].e = 2.0 / level;
  ledger.answer(1, two);
  EXPECT_TRUE(ledger.book().questions[0].answer->discovery);
  EXPECT_THAT(error_of([&] { ledger.answer(1, two); }), HasSubstr("its first verdict counts"));
  EXPECT_THAT(error_of([&] { ledger.answer(2, two); }), HasSubstr("question 2 has not begun"));
  const double p_level = ledger.begin(inquiry("b", 50, false)).level;
  Answer fixed{
      .arms = {{.arm = "proposal", .outcome = "worse", .p = 1.01 * p_level}}, .discovery = false, .time = ""};
  EXPECT_NE(error_of([&] { ledger.answer(2, fixed); }), "");
  fixed.arms[0].p = 0.99 * p_level;
  ledger.answer(2, fixed);
  // Equivalence is no discovery.
  ledger.begin(inquiry("c", 100));
  Answer equivalent{.arms = {{.arm = "proposal", .outcome = "equivalent", .e = 0.5, .e_equivalent = 1e300}},
                    .discovery = true,
                    .time = ""};
  ledger.answer(3, equivalent);
  EXPECT_FALSE(ledger.book().questions[2].answer->discovery);
  EXPECT_EQ(ledger.book().discoveries(), 2u);
}

TEST(Ledger, ASpendSurvivesTheDeathOfItsProcess) {
  const std::string folder = ledger_folder("death");
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      Ledger ledger(folder, 0.05);
      ledger.begin(inquiry("a"));
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);  // as a kill right after begin() returned: nothing is closed, flushed or destroyed
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  Ledger ledger(folder, 0.05);
  ASSERT_EQ(ledger.book().questions.size(), 1u);
  EXPECT_EQ(ledger.begin(inquiry("b", 50)).index, 2u);
  EXPECT_DOUBLE_EQ(ledger.book().questions.back().level, 0.05 * share_of(2));
}

TEST(Ledger, EveryTornLastLineIsRepaired) {
  const std::string folder = filled("torn");
  const std::string whole = text_in(folder);
  const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  const std::string path = Ledger::path_of(folder);
  for (std::size_t length = last + 1; length < whole.size(); length += length + 30 < whole.size() ? 7 : 1) {
    testing::write_text(path, whole.substr(0, length));
    fs::remove(folder + "/ledger.torn");
    const Ledger ledger(folder, 0.05);
    if (length + 1 == whole.size()) {
      // All but the line end is there: the line counts, for its question may have begun.
      EXPECT_THAT(ledger.repaired(), HasSubstr("is there again"));
      EXPECT_EQ(ledger.book().questions.size(), 3u);
      EXPECT_EQ(text_in(folder), whole);
      continue;
    }
    EXPECT_THAT(ledger.repaired(), HasSubstr("a crash cut the last line"));
    EXPECT_EQ(ledger.book().questions.size(), 2u);
    EXPECT_EQ(text_in(folder), whole.substr(0, last));
    EXPECT_EQ(testing::read_text_file(folder + "/ledger.torn"), whole.substr(last, length - last) + "\n");
  }
  // Zeros, as some file systems leave after a power cut; and a ledger whose first line was cut.
  testing::write_text(path, whole + std::string(40, '\0'));
  EXPECT_EQ(Ledger(folder, 0.05).book().questions.size(), 3u);
  EXPECT_EQ(text_in(folder), whole);
  testing::write_text(path, whole.substr(0, 30));
  EXPECT_EQ(Ledger(folder, 0.05).book().questions.size(), 0u);
  EXPECT_EQ(read_ledger(folder).alpha, 0.05);
}

TEST(Ledger, DamagedAndForeignLinesAreNamedAndRefused) {
  const std::string folder = filled("damage");
  const std::string whole = text_in(folder), path = Ledger::path_of(folder);
  std::vector<std::string> lines;
  for (std::size_t at = 0, end; (end = whole.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(whole.substr(at, end + 1 - at));
  ASSERT_EQ(lines.size(), 5u);
  const auto joined = [](std::vector<std::string> parts) {
    std::string out;
    for (const std::string& p : parts) out += p;
    return out;
  };
  struct Case {
    std::string text;
    int line;
    std::string words;
  };
  const std::string verdict_edited = testing::replaced(lines[3], "better", "worsen");
  std::vector<Case> cases{
      {joined({lines[0], lines[1], "hello\n", lines[2], lines[3], lines[4]}), 3, "parse error"},
      {joined({lines[0], lines[1], "\n", lines[2]}), 3, "parse error"},
      {joined({lines[0], lines[1], "{\"note\":1}\n", lines[2]}), 3, "does not end in a link"},
      {joined({lines[0], lines[1], "[]\n", lines[2]}), 3, "no JSON object"},
      {joined({lines[0], lines[2]}), 2, "one before it is missing"},
      {joined({lines[0], lines[1], lines[2], lines[4]}), 4, "one before it is missing"},
      {joined({lines[0], lines[1], lines[1]}), 3, "one before it is missing"},
      {joined({lines[0], lines[1], lines[2], verdict_edited, lines[4]}), 4, "was edited"},
      {joined({testing::replaced(lines[0], "0.05", "0.15"), lines[1]}), 1, "was edited"},
      {joined({testing::replaced(lines[0], "ledger/1", "ledger/2"), lines[1]}), 1,
       "the ledger has format 'tenon.ab.ledger/2', and this program reads 'tenon.ab.ledger/1'"},
      {whole + "and a note", 6, "does not begin as the next line would"},
  };
  for (const Case& c : cases) {
    testing::write_text(path, c.text);
    for (const bool writing : {false, true}) {
      const std::string error =
          error_of([&] { writing ? void(Ledger(folder, 0.05)) : void(read_ledger(folder)); });
      EXPECT_THAT(error, HasSubstr(fmt::format("{}:{}: no line of this ledger: ", path, c.line)));
      EXPECT_THAT(error, HasSubstr(c.words));
    }
    EXPECT_EQ(text_in(folder), c.text);
  }
}

/// Lines that are linked as they should be, and say what cannot be.
TEST(Ledger, LinesThatContradictTheRuleAreRefused) {
  const std::string folder = filled("contradictions");
  std::vector<std::string> bodies;
  const std::string whole = text_in(folder);
  for (std::size_t at = 0, end; (end = whole.find('\n', at)) != std::string::npos; at = end + 1)
    bodies.push_back(whole.substr(at, whole.rfind(",\"link\"", end) - at) + "}");
  const auto error_with = [&](std::size_t line, const std::string& from, const std::string& to) {
    std::string text, link;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      const std::string body = i + 1 == line ? testing::replaced(bodies[i], from, to) : bodies[i];
      const std::string linked = linked_line(link, body);
      link = linked.substr(linked.size() - 18, 16);
      text += linked + "\n";
    }
    return error_of([&] { parse_ledger(text, "L"); });
  };
  EXPECT_EQ(error_with(1, "format", "format"), "");
  EXPECT_THAT(error_with(1, "1/sqrt(t) - ", "1/t - "), HasSubstr("L:1: "));
  EXPECT_THAT(error_with(2, "\"begin\":1", "\"begin\":2"),
              HasSubstr("L:2: no line of this ledger: it begins question 2"));
  EXPECT_THAT(error_with(2, "\"begin\":1", "\"begin\":-1"), HasSubstr("expected a count"));
  EXPECT_THAT(error_with(2, "\"alpha\":0.0", "\"alpha\":0.1"), HasSubstr("but the rule gives"));
  EXPECT_THAT(error_with(2, "\"time\"", "\"times\""), HasSubstr("it has 'times'"));
  EXPECT_THAT(error_with(3, "[[100,109]]", "[[5,9]]"), HasSubstr("'rule' is 'e-LOND', expected 'reshaped'"));
  EXPECT_THAT(error_with(3, "[[100,109]]", "[[109,100]]"), HasSubstr("ascending pairs of seeds"));
  EXPECT_THAT(error_with(4, "\"verdict\":1", "\"verdict\":4"), HasSubstr("which has not begun"));
  EXPECT_THAT(error_with(4, "\"e\":500.0", "\"e\":5.0"), HasSubstr("does not carry"));
  EXPECT_THAT(error_with(4, "\"discovery\":true", "\"discovery\":false"), HasSubstr("expected true"));
  EXPECT_THAT(error_with(5, "\"discoveries\":1", "\"discoveries\":2"),
              HasSubstr("the lines before it name 1"));
}

TEST(Ledger, AnotherAlphaIsRefused) {
  const std::string folder = filled("alpha");
  EXPECT_THAT(error_of([&] { Ledger(folder, 0.1); }, ErrorKind::kConfig),
              HasSubstr("alpha is 0.1, and the family " + folder + " shares out 0.05"));
  EXPECT_THAT(error_of([] { read_ledger("/nowhere"); }, ErrorKind::kConfig), HasSubstr("is no family"));
}

TEST(Ledger, ProcessesTakeTurns) {
  const std::string folder = ledger_folder("turns");
  constexpr int kProcesses = 4, kEach = 12;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        for (int i = 0; i < kEach; ++i) {
          const std::string name = fmt::format("p{}-{}", p, i);
          const std::size_t index = Ledger(folder, 0.05).begin(inquiry(name, 1000 * p + 10 * i)).index;
          if (i % 3 == 0) Ledger(folder, 0.05).answer(index, answer("better", 1e9));
        }
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const LedgerBook book = read_ledger(folder);
  EXPECT_EQ(book.questions.size(), static_cast<std::size_t>(kProcesses * kEach));
  EXPECT_EQ(book.discoveries(), static_cast<std::size_t>(kProcesses * kEach / 3));
  std::set<std::string> names;
  for (const Question& q : book.questions) names.insert(q.asked.experiment);
  EXPECT_EQ(names.size(), book.questions.size());
}

TEST(Ledger, ALockThatIsNotReleasedIsAnErrorThatNamesItsHolder) {
  const std::string folder = filled("lock");
  const Ledger held(folder, 0.05);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of([&] { Ledger(folder, 0.05, 0.2); }),
              HasSubstr(fmt::format("{}/ledger.lock: process {} (", folder, ::getpid())));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

// --- Simulated projects.

constexpr int kProjects = 1000, kQuestions = 50;

struct Rate {
  double mean = 0, half = 0;  ///< 95% interval over projects
};

Rate rate_of(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const double n = static_cast<double>(values.size()), mean = sum / n;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, 1.96 * std::sqrt(squares / (n - 1) / n)};
}

struct Tally {
  std::vector<double> false_share;  ///< by project: false discoveries / discoveries
  double found = 0, effects = 0;

  void add(int discoveries, int wrong) { false_share.push_back(wrong / std::max(1.0, double(discoveries))); }
  Rate fdr() const { return rate_of(false_share); }
  double power() const { return found / effects; }
};

/// `decide(t, level, effect)` returns whether question t is a discovery at that level. `rule` is empty for
/// alpha per question. `together` questions begin before any of them is answered.
template <typename Decide>
void play(Tally& tally, std::mt19937_64& random, std::optional<LevelRule> rule, int together,
          Decide&& decide) {
  std::bernoulli_distribution has_effect(0.1);
  int discoveries = 0, wrong = 0, known = 0;
  for (int t = 0; t < kQuestions; ++t) {
    if (t % together == 0) known = discoveries;
    const bool effect = has_effect(random);
    const double level =
        rule ? level_of(0.05, static_cast<std::size_t>(t) + 1, static_cast<std::size_t>(known), *rule) : 0.05;
    const bool found = decide(level, effect);
    discoveries += found;
    wrong += found && !effect;
    tally.found += found && effect;
    tally.effects += effect;
  }
  tally.add(discoveries, wrong);
}

void print(const std::string& name, const Tally& tally) {
  std::printf("%-58s FDR %.4f +- %.4f, effects found %.1f%%\n", name.c_str(), tally.fdr().mean,
              tally.fdr().half, 100 * tally.power());
}

void expect_held(const Tally& tally) {
  EXPECT_LE(tally.fdr().mean + tally.fdr().half, 0.05);
}

/// Pairs of a question with looks: no more are drawn than it asks for.
class SequentialQuestion {
 public:
  explicit SequentialQuestion(SequentialMethod method) : method_(method) {}

  template <typename Draw>
  bool operator()(double level, Draw&& draw) const {
    EvidenceProcess process(method_, {}, level);
    for (int pair = 1; pair <= kMostPairs; ++pair) {
      process.add(draw());
      if (pair >= 5 && conclusion_of(process.now(), level) != Conclusion::kNone) return true;
    }
    return false;
  }

  static constexpr int kMostPairs = 24;

 private:
  SequentialMethod method_;
};

constexpr double kEffect = 1.5;  // in paired standard deviations

TEST(LedgerSimulation, SequentialQuestionsOnSeedsOfTheirOwn) {
  for (const SequentialMethod method : {SequentialMethod::kNormal, SequentialMethod::kSign}) {
    for (const int together : {1, 5}) {
      std::mt19937_64 random(11);
      std::normal_distribution<double> normal;
      const SequentialQuestion ask(method);
      Tally family, alone;
      for (int project = 0; project < kProjects; ++project) {
        const auto decide = [&](double level, bool effect) {
          return ask(level, [&] { return normal(random) + (effect ? kEffect : 0); });
        };
        play(family, random, LevelRule::kELond, together, decide);
        if (together == 1) play(alone, random, std::nullopt, 1, decide);
      }
      const std::string name = fmt::format("{}, {} at a time", kSequentialMethods.name(method), together);
      print(name + ", in a family:", family);
      expect_held(family);
      EXPECT_GT(family.power(), 0.5);
      if (together > 1) continue;
      print(name + ", alpha for each question:", alone);
      EXPECT_GT(alone.fdr().mean - alone.fdr().half, 0.05);  // the simulation can fail
    }
  }
}

/// All questions of a project are about one baseline, on the same seeds: their differences share its runs.
TEST(LedgerSimulation, SequentialQuestionsThatShareTheirBaseline) {
  std::mt19937_64 random(12);
  std::normal_distribution<double> normal;
  const SequentialQuestion ask(SequentialMethod::kNormal);
  Tally family, alone;
  for (int project = 0; project < kProjects; ++project) {
    std::vector<double> baseline(SequentialQuestion::kMostPairs);
    for (double& b : baseline) b = normal(random);
    const auto decide = [&](double level, bool effect) {
      std::size_t pair = 0;
      return ask(level, [&] {
        return (normal(random) - baseline[pair++]) / std::sqrt(2.0) + (effect ? kEffect : 0);
      });
    };
    play(family, random, LevelRule::kReshaped, 1, decide);
    play(alone, random, std::nullopt, 1, decide);
  }
  print("normal, one baseline, in a family:", family);
  print("normal, one baseline, alpha for each question:", alone);
  expect_held(family);
  EXPECT_GT(family.power(), 0.4);
}

/// The paired t test; with seeds of their own, and with one baseline.
TEST(LedgerSimulation, FixedQuestions) {
  struct Case {
    std::size_t pairs;
    bool shared;
    double least_power;
  };
  for (const auto& [pairs, shared, least_power] :
       {Case{10, false, 0.2}, Case{16, false, 0.7}, Case{16, true, 0.7}}) {
    std::mt19937_64 random(13);
    std::normal_distribution<double> normal;
    Tally family, alone;
    std::vector<double> baseline(pairs, 0.0), differences(pairs);
    for (int project = 0; project < kProjects; ++project) {
      if (shared) {
        for (double& b : baseline) b = normal(random);
      }
      const auto decide = [&](double level, bool effect) {
        for (std::size_t i = 0; i < differences.size(); ++i) {
          differences[i] = shared ? (normal(random) - baseline[i]) / std::sqrt(2.0) : normal(random);
          if (effect) differences[i] += kEffect;
        }
        return paired_t_test(differences).p <= level;
      };
      play(family, random, LevelRule::kReshaped, 1, decide);
      play(alone, random, std::nullopt, 1, decide);
    }
    const std::string name = fmt::format("t test of {} pairs{}", pairs, shared ? ", one baseline" : "");
    print(name + ", in a family:", family);
    print(name + ", alpha for each question:", alone);
    expect_held(family);
    EXPECT_GT(family.power(), least_power);
    EXPECT_GT(alone.fdr().mean - alone.fdr().half, 0.05);
  }
}

}  // namespace
}  // namespace tenon::ab
