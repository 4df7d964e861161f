// The experiment's rules, then its file as Experiment: keys, types and unknown-key errors go through the
// core's configuration layer. See experiment.hpp.
#include "ab/experiment.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace tenon::ab {
namespace {

void check_arms(const Experiment& e, std::vector<std::string>& problems) {
  if (e.arms.size() < 2) {
    problems.push_back(
        fmt::format("an experiment compares at least two arms, found {}; add [[arm]] tables "
                    "(the first is the baseline), or [[factor]] tables, whose cells are the arms",
                    e.arms.size()));
  }
  std::set<std::string> names;
  for (const Arm& arm : e.arms) {
    if (!usable_as_folder(arm.name)) {
      problems.push_back(
          fmt::format("arm name '{}' cannot name a folder; use letters, digits, '.', '_' and '-', "
                      "at most 64, not starting with '.' or '-'",
                      arm.name));
    }
    if (!names.insert(arm.name).second) problems.push_back(fmt::format("two arms are called '{}'", arm.name));
  }
}

void check_sequential(const Experiment& e, std::vector<std::string>& problems) {
  if (!e.sequential) return;
  const SequentialRule& rule = *e.sequential;
  if (rule.first_look < 2 || rule.block < 1 || rule.max_seeds < rule.first_look) {
    problems.push_back(fmt::format(
        "sequential: expected 2 <= first_look <= max_seeds and block of at least 1, found first_look = {}, "
        "max_seeds = {}, block = {}",
        rule.first_look, rule.max_seeds, rule.block));
  }
  if (e.seeds.size() != rule.max_seeds) {
    problems.push_back(
        fmt::format("sequential: max_seeds is {}, but there are {} seeds; name as many, or write "
                    "seeds = {{ from = 1 }}",
                    rule.max_seeds, e.seeds.size()));
  }
  if (e.decide_by == DecideBy::kTimeToTarget) {
    problems.push_back(
        "[sequential] decides on final values; it cannot be used with decide_by = \"time_to_target\"");
  }
}

void check_tuned_arms(const Experiment& e, std::vector<std::string>& problems) {
  for (const TunedKey& key : e.tune->keys) {
    for (const std::string& name : key.only) {
      if (std::none_of(e.arms.begin(), e.arms.end(), [&](const Arm& arm) { return arm.name == name; }))
        problems.push_back(fmt::format("tune: key '{}' is for arm '{}', which is not there", key.name, name));
    }
    for (const Arm& arm : e.arms) {
      if (!key.belongs_to(arm.name)) continue;
      for (const std::string& set : arm.set) {
        if (!set.starts_with(key.name + "=")) continue;
        problems.push_back(
            fmt::format("tune: key '{}' is tuned, and arm '{}' sets it ({}); leave that out, or tune the key "
                        "with only = [...] the other arms",
                        key.name, arm.name, set));
      }
    }
  }
  const std::size_t tuned = e.tune->arms == TuneArms::kShared ? 1 : e.arms.size();
  for (std::size_t a = 0; a < std::min(tuned, e.arms.size()); ++a) {
    const std::string& arm = e.arms[a].name;
    if (e.tune->keys.empty() || std::any_of(e.tune->keys.begin(), e.tune->keys.end(),
                                            [&](const TunedKey& key) { return key.belongs_to(arm); }))
      continue;
    problems.push_back(
        fmt::format("tune: arm '{}' has no key to tune, so the arms would not cost the same; name one of its "
                    "keys, too",
                    arm));
  }
}

void check_tune(const Experiment& e, std::vector<std::string>& problems) {
  if (!e.tune) return;
  for (std::string& problem : problems_of(*e.tune)) problems.push_back(std::move(problem));
  for (const std::int64_t seed : e.tune->seeds) {
    if (std::find(e.seeds.begin(), e.seeds.end(), seed) == e.seeds.end()) continue;
    problems.push_back(fmt::format(
        "tune: seed {} is also a seed of the verdict; a setting that was chosen on it looks better "
        "there than it is. Tune on other seeds",
        seed));
  }
  check_tuned_arms(e, problems);
}

void check_factors(const Experiment& e, std::vector<std::string>& problems) {
  if (e.factors.empty()) return;
  if (e.arms.size() != cell_count(e.factors)) {
    problems.push_back(fmt::format("factor: {} cells, but {} arms; expected an arm for each cell",
                                   cell_count(e.factors), e.arms.size()));
  }
  if (e.sequential || e.tune || e.decide_by == DecideBy::kTimeToTarget) {
    problems.push_back(
        "factor: a factorial study has neither [sequential] nor [tune], and decides on final values");
  }
}

/// Problems of [ladder] by itself and beside other tables, each with the place of the table.
std::vector<std::string> ladder_problems(const Experiment& e) {
  if (!e.ladder) return {};
  const LadderRule& rule = *e.ladder;
  std::vector<std::string> out = problems_of(rule);
  const auto add = [&](const std::string& text) {
    out.push_back((rule.where.empty() ? "ladder: " : rule.where + ": ladder: ") + text);
  };
  if (e.seeds.size() < kLeastLadderPairs) {
    add(fmt::format(
        "{} seeds; the weight of a point's effect comes from the spread of its pairs, which takes at "
        "least {}",
        e.seeds.size(), kLeastLadderPairs));
  }
  if (!e.factors.empty())
    add("a ladder compares arms, and [[factor]] tables make a factorial study; leave one of them out");
  if (e.sequential) {
    add("[sequential] stops the study of a point where its effect happens to look large, and a fit of such "
        "effects is biased; name as many seeds as every point shall have, and leave [sequential] out");
  }
  if (e.decide_by == DecideBy::kTimeToTarget)
    add("the effect of a point is the difference of final values; leave decide_by = \"time_to_target\" out");
  if (rule.has_budgets() && e.budget.amount > 0)
    add("every point has a budget of its own, so [budget] says nothing; leave it out");
  if (!rule.has_budgets() && !(e.budget.amount > 0)) {
    add("a point has no budget; write steps beside its set, tokens_per_parameter or samples_per_parameter in "
        "[ladder], or a [budget] for all");
  }
  return out;
}

}  // namespace

bool usable_as_folder(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), plain);
}

bool lower_is_better(const std::string& metric) {
  const std::string name = metric.substr(metric.rfind('/') + 1);
  return name != "accuracy" && name != "auc" && !name.ends_with("_per_s");
}

void validate(const Experiment& e) {
  std::vector<std::string> problems;
  check_arms(e, problems);
  if (e.seeds.empty())
    problems.push_back("seeds is empty; name the seeds that every arm runs, e.g. seeds = [1, 2, 3, 4, 5]");
  if (std::set<std::int64_t>(e.seeds.begin(), e.seeds.end()).size() != e.seeds.size()) {
    problems.push_back("seeds repeats a seed; the same seed twice is one pair, not two");
  }
  if (std::any_of(e.seeds.begin(), e.seeds.end(), [](std::int64_t s) { return s < 0; })) {
    problems.push_back("seeds contains a negative number; seeds count from 0");
  }
  if (!(e.budget.amount > 0) && !e.ladder)
    problems.push_back("no budget; write e.g. budget = { steps = 400 }, equal for all arms");
  if (!(e.alpha > 0 && e.alpha < 0.5))
    problems.push_back(fmt::format("alpha is {}; expected between 0 and 0.5", e.alpha));
  if (e.margin && !(*e.margin > 0)) {
    problems.push_back(
        fmt::format("margin is {}; expected a positive difference in units of {}", *e.margin, e.metric));
  }
  if (e.decide_by == DecideBy::kTimeToTarget && !e.target) {
    problems.push_back(fmt::format("decide_by = \"time_to_target\" needs target = <value of {}>", e.metric));
  }
  if (e.decide_by == DecideBy::kTimeToTarget && e.margin) {
    problems.push_back(
        "margin applies to final values; it cannot be used with decide_by = \"time_to_target\"");
  }
  check_sequential(e, problems);
  check_tune(e, problems);
  check_factors(e, problems);
  for (std::string& problem : ladder_problems(e)) problems.push_back(std::move(problem));
  if (problems.empty()) return;
  for (std::string& p : problems) p = fmt::format("{}: {}", e.path.empty() ? e.name : e.path, p);
  fail_config(fmt::format("{}", fmt::join(problems, "\n")));
}

Experiment against_itself(const Experiment& experiment) {
  Experiment out = experiment;
  Arm copy = experiment.arms.front();
  copy.name += "-again";
  copy.own_order = true;
  out.arms = {experiment.arms.front(), copy};
  out.question = fmt::format("Does the pipeline find a difference where there is none ({} against itself)?",
                             experiment.arms.front().name);
  return out;
}

namespace {

namespace fs = std::filesystem;

constexpr OptionSpec kExperimentOptions[] = {
    option::text("question", "\"\"").doc_text("what the study asks, in one sentence"),
    option::path("base", nullptr).mandatory().doc_text("configuration that every arm extends"),
    option::integers("seeds", nullptr).mandatory().doc_text("seeds that every arm runs; one pair each"),
    option::text("metric", "\"val/loss\"").doc_text("primary metric, with its split"),
    option::boolean("lower_is_better", nullptr)
        .doc_text("direction of the primary metric; known for the usual names"),
    option::texts("secondary", "[]")
        .doc_text("secondary metrics; empty takes every shared train/ and val/ metric"),
    option::real("margin", nullptr).doc_text("differences below it do not matter (equivalence test)"),
    option::real("target", nullptr).doc_text("value of the metric whose first crossing is timed"),
    option::text("decide_by", "\"final\"").one_of(kDecideBy).doc_text("what the verdict rests on"),
    option::text("test", "\"t\"").one_of(kTests).doc_text("which p-value decides; both are printed"),
    option::real("alpha", "0.05").between(0.0001, 0.4999).doc_text("level of tests and intervals"),
};

constexpr OptionSpec kArmOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("names the arm and its folder"),
    option::paths("extends", "[]").doc_text("configurations laid over the base, in order"),
    option::texts("set", "[]").doc_text("\"a.b=c\", as on the command line"),
};

// For schemas; read_budget() reads the table, which names exactly one of them.
constexpr OptionSpec kBudgetOptions[] = {
    option::real("steps", nullptr).doc_text("slots of every run"),
    option::real("samples", nullptr).doc_text("samples of every run"),
    option::real("tokens", nullptr).doc_text("tokens of every run"),
    option::real("seconds", nullptr).in_unit("s").doc_text("of every run, on its clock"),
    option::real("bytes", nullptr).doc_text("that every run sends"),
};

constexpr OptionSpec kSequentialOptions[] = {
    option::integer("max_seeds", nullptr)
        .mandatory()
        .between(2, 10'000)
        .doc_text("pairs at which the study ends undecided"),
    option::integer("first_look", "5").between(2, 10'000).doc_text("pairs before the first look"),
    option::integer("block", "1").between(1, 10'000).doc_text("pairs from look to look"),
    option::text("method", "\"sign\"")
        .one_of(kSequentialMethods)
        .doc_text("sign: differences with either sign alike under no effect; normal: normal ones"),
    option::real("futility", nullptr)
        .between(0.001, 0.5)
        .doc_text("stop where a conclusion by max_seeds is less likely than this"),
};

// An open list, for [sequential] alone.
constexpr OptionSpec kSeedsOptions[] = {
    option::integer("from", nullptr)
        .mandatory()
        .between(0, 1e15)
        .doc_text("first seed; with [sequential] alone"),
};

std::vector<std::string> texts_of(const Options& options, std::string_view name) {
  const auto texts = options.texts(name);
  return {texts.begin(), texts.end()};
}

Budget read_budget(const Value& root, const std::string& path) {
  const Value* budget = root.find("budget");
  if (budget == nullptr) return {};  // validate() says what is missing
  const auto complain = [&](const Origin& origin) {
    fail_config(
        fmt::format("{}: budget names exactly one of steps, samples, tokens, seconds, bytes, e.g. "
                    "budget = {{ steps = 400 }}",
                    origin.text().empty() ? path : origin.text()));
  };
  if (!budget->is_table() || budget->table().size() != 1) complain(budget->origin);
  const Member& only = budget->table().front();
  for (Axis axis : kAxes) {
    if (only.key == axis_name(axis)) return {axis, only.value.real()};
  }
  complain(only.origin);
  return {};
}

std::optional<SequentialRule> read_sequential(const Value& root) {
  const Value* table = root.find("sequential");
  if (table == nullptr) return std::nullopt;
  if (!table->is_table())
    fail_config(fmt::format("{}: expected the table [sequential], found {}", table->origin.text(),
                            table->description()));
  OptionRequest request{.table = *table, .owner = "sequential", .specs = option_list(kSequentialOptions)};
  const Resolution resolved = resolve_options(request);
  const Options& options = *resolved.options;
  SequentialRule rule;
  rule.max_seeds = static_cast<std::size_t>(options.integer("max_seeds"));
  rule.first_look = static_cast<std::size_t>(options.integer("first_look"));
  rule.block = static_cast<std::size_t>(options.integer("block"));
  rule.method = options.choice("method", kSequentialMethods);
  if (options.has("futility")) rule.futility = options.real("futility");
  if (rule.max_seeds < rule.first_look) {
    fail_config(fmt::format(
        "{}: max_seeds is {}, less than first_look, which is {}; allow as many pairs as the first look needs",
        table->find("max_seeds")->origin.text(), rule.max_seeds, rule.first_look));
  }
  for (const char* key : {"test", "decide_by"}) {
    const Value* value = root.find(key);
    if (value == nullptr || (value->is_text() && value->text() == "final")) continue;
    fail_config(
        fmt::format("{}: {} = {} is a rule for a number of pairs that is fixed beforehand; under "
                    "[sequential], `method` decides on final values. Leave it out",
                    value->origin.text(), key, value->inline_toml()));
  }
  return rule;
}

/// Gives `root` the list that `seeds` stands for under the rule: the first max_seeds of an open or closed
/// list.
void close_seeds(Value& root, const std::optional<SequentialRule>& rule) {
  Value* seeds = root.find("seeds");
  if (seeds == nullptr) return;
  const Origin origin = seeds->origin;
  if (seeds->is_table()) {
    if (!rule) {
      fail_config(
          fmt::format("{}: seeds = {} is an open list, which [sequential] alone can end; write a list, or "
                      "add [sequential] with max_seeds",
                      origin.text(), seeds->inline_toml()));
    }
    OptionRequest request{.table = *seeds, .owner = "seeds", .specs = option_list(kSeedsOptions)};
    const std::int64_t from = resolve_options(request).options->integer("from");
    Value::Array list;
    for (std::size_t i = 0; i < rule->max_seeds; ++i) {
      list.emplace_back(from + static_cast<std::int64_t>(i));
      list.back().origin = origin;
    }
    *seeds = Value(std::move(list));
    seeds->origin = origin;
  } else if (rule && seeds->is_array()) {
    if (seeds->array().size() < rule->max_seeds) {
      fail_config(fmt::format(
          "{}: {} seeds, fewer than [sequential] max_seeds, which is {}; name as many, or write seeds = "
          "{{ from = 1 }}",
          origin.text(), seeds->array().size(), rule->max_seeds));
    }
    seeds->array().resize(rule->max_seeds);
  }
}

Arm read_arm(const Value& table, std::size_t index) {
  OptionRequest request{
      .table = table, .owner = fmt::format("arm[{}]", index), .specs = option_list(kArmOptions)};
  const Resolution resolved = resolve_options(request);
  const Options& options = *resolved.options;
  Arm arm;
  arm.name = options.text("name");
  arm.extends = texts_of(options, "extends");
  arm.set = texts_of(options, "set");
  return arm;
}

}  // namespace

std::vector<config::TableSpecs> experiment_tables() {
  std::vector<config::TableSpecs> tables = {{"", kExperimentOptions},   {"seeds", kSeedsOptions},
                                            {"budget", kBudgetOptions}, {"sequential", kSequentialOptions},
                                            {"arm", kArmOptions, true}, {"tune.budget", kBudgetOptions}};
  for (config::TableSpecs& table : tune_tables()) tables.push_back(std::move(table));
  for (config::TableSpecs& table : factor_tables()) tables.push_back(std::move(table));
  for (config::TableSpecs& table : ladder_tables()) tables.push_back(std::move(table));
  return tables;
}

Experiment read_experiment(const std::string& path, const std::vector<std::string>& sets) {
  const Config config = Config::load(path, sets);
  Value root = config.root();
  const std::vector<Factor> factors = read_factors(root);
  const std::optional<SequentialRule> rule = read_sequential(root);
  close_seeds(root, rule);
  OptionRequest request{.table = root,
                        .owner = "experiment",
                        .specs = option_list(kExperimentOptions),
                        .other_keys = {"arm", "budget", "factor", "ladder", "sequential", "tune"}};
  const Resolution resolved = resolve_options(request);
  const Options& options = *resolved.options;

  Experiment e;
  e.sequential = rule;
  e.path = fs::absolute(path).lexically_normal().string();
  e.name = fs::path(path).stem().string();
  e.question = options.text("question");
  e.base = options.text("base");
  const auto seeds = options.integers("seeds");
  e.seeds.assign(seeds.begin(), seeds.end());
  e.metric = options.text("metric");
  e.lower_is_better =
      options.has("lower_is_better") ? options.boolean("lower_is_better") : lower_is_better(e.metric);
  e.secondary = texts_of(options, "secondary");
  if (options.has("margin")) {
    e.margin = options.real("margin");
    if (!(*e.margin > 0)) {
      fail_config(fmt::format("{}: margin is {}; expected a positive difference in units of {}, or no margin",
                              root.find("margin")->origin.text(), *e.margin, e.metric));
    }
  }
  if (options.has("target")) e.target = options.real("target");
  e.decide_by = options.choice("decide_by", kDecideBy);
  e.test = options.choice("test", kTests);
  e.alpha = options.real("alpha");
  e.budget = read_budget(config.root(), path);
  if (const Value* tune = root.find("tune")) {
    e.tune = read_tune(*tune);
    if (tune->find("budget") != nullptr) e.tune->budget = read_budget(*tune, path);
  }
  if (const Value* arms = config.root().find("arm")) {
    if (!arms->is_array())
      fail_config(fmt::format("{}: arms are written as [[arm]] tables", arms->origin.text()));
    for (std::size_t i = 0; i < arms->array().size(); ++i) e.arms.push_back(read_arm(arms->array()[i], i));
  }
  e.factors = factors;
  for (std::size_t cell = 0; !factors.empty() && cell < cell_count(factors); ++cell)
    e.arms.push_back({.name = cell_name(factors, cell), .set = cell_sets(factors, cell)});
  if (const Value* ladder = root.find("ladder")) e.ladder = read_ladder(*ladder);
  // These say where they are, and validate() would put the file before that.
  if (const auto problems = ladder_problems(e); !problems.empty())
    fail_config(fmt::format("{}", fmt::join(problems, "\n")));
  validate(e);
  return e;
}

}  // namespace tenon::ab
