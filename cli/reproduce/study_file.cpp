// Study files; see study_file.hpp. Keys, types and misspellings go through the core's configuration layer.
#include "reproduce/study_file.hpp"

#include "config/words.hpp"
#include "reproduce/study_kind.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;

constexpr auto kFigures = option::choice<Figure>({{"gaps", Figure::kGaps},
                                                  {"shares", Figure::kShares},
                                                  {"curves", Figure::kCurves},
                                                  {"bytes", Figure::kBytes}});
constexpr const char* kSizes[] = {"quick", "default", "full", "cuda"};

constexpr OptionSpec kStudyOptions[] = {
    option::text("title", nullptr).mandatory().doc_text("one line for the list of studies"),
    option::text("paper", nullptr).mandatory().doc_text("what is reproduced: paper, table or figure"),
    option::text("question", nullptr).mandatory().doc_text("what the study asks, in one sentence"),
    option::path("base", nullptr).mandatory().doc_text("the run that every arm changes"),
    option::text("metric", "\"val/loss\"").doc_text("what is compared, with its split"),
    option::text("baseline", nullptr).mandatory().doc_text("arm to which gaps are measured"),
    option::text("reference", "\"\"").doc_text("a second arm to which gaps are measured"),
    option::text("figure", "\"gaps\"").one_of(kFigures).doc_text("what figure.svg shows"),
    option::text("figure_metric", "\"train/loss\"").doc_text("of the curves"),
    option::texts("curves", "[]").doc_text("arms whose curves are drawn; empty takes the first six"),
    option::texts("shares", "[]").doc_text("metrics between 0 and 1 that the table shows in per cent"),
    option::text("decisions", "\"\"").doc_text("beginning of the metrics of single operands"),
    option::real("alpha", "0.05").between(0.0001, 0.4999).doc_text("1 - coverage of the intervals"),
    option::real("margin", "0")
        .at_least(0)
        .doc_text("differences of the metric that count as none: above 0 the table has verdicts"),
    option::texts("notes", "[]").doc_text("what a reader of the table should know"),
};

constexpr OptionSpec kSizeOptions[] = {
    option::integer("steps", "0")
        .doc_text("updates of every run; mandatory but where the kind of study counts something else"),
    option::integers("seeds", nullptr).mandatory().doc_text("seeds that every arm runs"),
    option::texts("set", "[]").doc_text("\"a.b=c\", for every arm"),
    option::real("minutes", "0").at_least(0).in_unit("min").doc_text("that the whole study takes"),
    option::text("machine", "\"two cores\"").doc_text("to which minutes belongs"),
    option::integer("samples", "0")
        .at_least(0)
        .doc_text("samples or tasks of every run, where the kind of study counts them"),
    option::integer("measured_samples", "0").at_least(0).doc_text("of those under the wall clock"),
    option::integers("points", "[]")
        .doc_text("numbers of trainers, ranks or workers, in place of the study's"),
    option::texts("simulate", "[]").doc_text("\"a.b=c\" over the simulation of [simulate]"),
};

constexpr OptionSpec kArmOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("names the arm and its folder"),
    option::text("title", "\"\"").doc_text("for the table"),
    option::text("note", "\"\"").doc_text("what the arm keeps, or why it is there"),
    option::paths("extends", "[]").doc_text("configurations laid over the base, in order"),
    option::texts("set", "[]").doc_text("\"a.b=c\", as on the command line"),
    option::text("metric", "\"\"")
        .doc_text("stands for the study's metric in runs of this arm that have it: what is compared may be a "
                  "part of a sum there"),
    option::text("baseline", "\"\"").doc_text("arm to which its gap is measured; the study's if absent"),
    option::boolean("may_fail", "false").doc_text("a failed run is a result"),
    option::integer("steps_over", "1")
        .at_least(1)
        .doc_text("divides the size's steps: for slots that hold more"),
};

constexpr OptionSpec kPaperOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("beside which the number stands"),
    option::real("value", nullptr).mandatory().doc_text("in the units of the figure"),
    option::text("what", nullptr).mandatory().doc_text("model and point of the paper's number"),
    option::text("source", nullptr).mandatory().doc_text("table or figure, and how sure the number is"),
};

constexpr OptionSpec kSimulationOptions[] = {
    option::path("config", nullptr).mandatory().doc_text("of `tenon simulate`"),
    option::texts("set", "[]").doc_text("\"a.b=c\" over it; those of the size come on top"),
    option::texts("sizes", "[]").doc_text("at which data is simulated; empty: at all"),
};

constexpr OptionSpec kOtherDataOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("heads the column"),
    option::text("metric", "\"\"").doc_text("that is measured; the study's if absent"),
    option::texts("set", "[]").doc_text("\"a.b=c\" over the configuration of the run"),
    option::texts("arms", "[]").doc_text("that are measured; empty: all"),
    option::texts("sizes", "[]").doc_text("at which they are measured; empty: at all"),
};

constexpr OptionSpec kAgreeOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("that is compared"),
    option::text("with", nullptr).mandatory().doc_text("the arm whose values are the measure"),
    option::text("metric", "\"train/loss\"").doc_text("that is compared, after every update"),
    option::integer("updates", "10").at_least(1).doc_text("that are compared, from the first one on"),
};

std::string text_of(const Options& options, std::string_view name) {
  return std::string(options.text(name));
}

Resolution resolved(const Value& table, const std::string& owner, std::span<const OptionSpec> specs,
                    const std::vector<std::string>& others = {}) {
  OptionRequest request{.table = table, .owner = owner, .specs = option_list(specs)};
  for (const std::string& key : others) request.other_keys.push_back(key);
  return resolve_options(request);
}

Size read_size(const char* name, const Value& table) {
  const Resolution found = resolved(table, fmt::format("size.{}", name), kSizeOptions);
  const Options& options = *found.options;
  Size size;
  size.name = name;
  size.steps = options.integer("steps");
  size.seeds = integers_of(options, "seeds");
  size.set = texts_of(options, "set");
  size.minutes = options.real("minutes");
  size.machine = text_of(options, "machine");
  size.samples = options.integer("samples");
  size.measured_samples = options.integer("measured_samples");
  size.points = integers_of(options, "points");
  size.simulate = texts_of(options, "simulate");
  return size;
}

StudyArm read_arm(const Value& table, std::size_t index) {
  const Resolution found = resolved(table, fmt::format("arm[{}]", index), kArmOptions);
  const Options& options = *found.options;
  StudyArm arm;
  arm.arm.name = text_of(options, "name");
  arm.arm.extends = texts_of(options, "extends");
  arm.arm.set = texts_of(options, "set");
  arm.title = text_of(options, "title").empty() ? arm.arm.name : text_of(options, "title");
  arm.note = text_of(options, "note");
  arm.metric = text_of(options, "metric");
  arm.baseline = text_of(options, "baseline");
  arm.may_fail = options.boolean("may_fail");
  arm.steps_over = options.integer("steps_over");
  return arm;
}

template <typename Read>
void each(const Value& root, const char* name, Read&& read) {
  const Value* list = root.find(name);
  for (std::size_t i = 0; list != nullptr && i < list->array().size(); ++i)
    read(list->array()[i], fmt::format("{}[{}]", name, i));
}

std::vector<std::string> study_part_names() {
  return {"simulate", "evaluate", "agree", "compare", "decode"};
}

void read_study_parts(const Value& root, StudyFile& study) {
  if (const Value* table = root.find("simulate")) {
    const Resolution found = resolved(*table, "simulate", kSimulationOptions);
    study.simulation = {text_of(*found.options, "config"), texts_of(*found.options, "set"),
                        texts_of(*found.options, "sizes")};
  }
  each(root, "evaluate", [&](const Value& table, const std::string& owner) {
    const Resolution found = resolved(table, owner, kOtherDataOptions);
    const Options& options = *found.options;
    const std::string metric = text_of(options, "metric");
    study.evaluations.push_back({text_of(options, "name"), metric.empty() ? study.metric : metric,
                                 texts_of(options, "set"), texts_of(options, "arms"),
                                 texts_of(options, "sizes")});
  });
  each(root, "agree", [&](const Value& table, const std::string& owner) {
    const Resolution found = resolved(table, owner, kAgreeOptions);
    const Options& options = *found.options;
    study.agreements.push_back({text_of(options, "arm"), text_of(options, "with"), text_of(options, "metric"),
                                options.integer("updates")});
  });
  study.differences = read_differences(root);
  study.decode = read_decode(root);
}

void check_study_parts(const StudyFile& study, Problems& problems) {
  std::vector<std::string> there;
  for (const Size& size : study.sizes) there.push_back(size.name);
  const auto sizes_named = [&](const std::string& table, const std::vector<std::string>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (study.size(sizes[i]) != nullptr) continue;
      problems.say(
          fmt::format("{}.sizes[{}]", table, i),
          fmt::format("the study has no size '{}'{}", sizes[i], config::suggestion(sizes[i], there)));
    }
  };
  if (study.simulation) sizes_named("simulate", study.simulation->sizes);
  for (const Size& size : study.sizes) {
    if (size.simulate.empty() || (study.simulation && says(study.simulation->sizes, size.name))) continue;
    problems.say(fmt::format("size.{}.simulate", size.name),
                 "nothing is simulated at this size without [simulate]");
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < study.evaluations.size(); ++i) {
    const OtherData& other = study.evaluations[i];
    const std::string table = fmt::format("evaluate[{}]", i);
    if (!names.insert(other.name).second)
      problems.say(table + ".name", fmt::format("two columns are called '{}'", other.name));
    for (std::size_t a = 0; a < other.arms.size(); ++a)
      problems.arm_named(fmt::format("{}.arms[{}]", table, a), other.arms[a]);
    sizes_named(table, other.sizes);
  }
  for (std::size_t i = 0; i < study.agreements.size(); ++i) {
    const AgreeingPair& pair = study.agreements[i];
    const std::string table = fmt::format("agree[{}]", i);
    problems.arm_named(table + ".arm", pair.arm);
    problems.arm_named(table + ".with", pair.with);
    if (pair.arm == pair.with) problems.say(table + ".with", "an arm agrees with itself; name another");
  }
  check_differences(study, problems);
  check_decode(study, problems);
}

/// Checks of the tables against one another; each problem is reported at the place of its value.
void check(const StudyFile& study, const Problems::Kinds& all, Problems& checks) {
  const Problems::Kinds& there = checks.kinds();
  if (study.arms.empty()) checks.say("arm", "a study needs at least one [[arm]]");
  std::set<std::string> names;
  for (std::size_t i = 0; i < study.arms.size(); ++i) {
    const std::string& name = study.arms[i].arm.name;
    const std::string key = fmt::format("arm[{}].name", i);
    if (!ab::usable_as_folder(name)) {
      checks.say(key, fmt::format("'{}' cannot name a folder; use letters, digits, '.', '_' and '-', at most "
                                  "64, not starting with '.' or '-'",
                                  name));
    }
    if (!names.insert(name).second) checks.say(key, fmt::format("two arms are called '{}'", name));
  }
  checks.arm_named("baseline", study.baseline);
  if (!study.reference.empty()) checks.arm_named("reference", study.reference);
  for (std::size_t i = 0; i < study.curves.size(); ++i)
    checks.arm_named(fmt::format("curves[{}]", i), study.curves[i]);
  if (study.curves.size() > 6) checks.say("curves", "a figure shows at most six curves");
  for (std::size_t i = 0; i < study.paper_values.size(); ++i)
    checks.arm_named(fmt::format("paper_value[{}].arm", i), study.paper_values[i].arm);
  if (study.figure == Figure::kShares && study.shares.empty())
    checks.say("figure", "a figure of shares needs shares = [\"train/...\"]");
  for (std::size_t i = 0; i < study.arms.size(); ++i) {
    if (study.arms[i].baseline != study.baseline)
      checks.arm_named(fmt::format("arm[{}].baseline", i), study.arms[i].baseline);
  }
  for (const char* name : {"quick", "default"}) {
    if (study.size(name) == nullptr)
      checks.say("size",
                 fmt::format("[size.{}] is missing; every study has a quick and a default size", name));
  }
  for (const Size& size : study.sizes) {
    const std::string key = "size." + size.name + ".seeds";
    const std::set<std::int64_t> distinct(size.seeds.begin(), size.seeds.end());
    if (size.seeds.empty()) checks.say(key, "name at least one seed, e.g. seeds = [1, 2, 3]");
    if (distinct.size() != size.seeds.size()) checks.say(key, "a seed is repeated");
    if (!distinct.empty() && *distinct.begin() < 0) checks.say(key, "seeds count from 0");
    const bool counts_steps =
        std::all_of(there.begin(), there.end(), [](const auto& kind) { return kind->counts_steps(); });
    if (counts_steps && size.steps < 1) {
      checks.say(fmt::format("size.{}.steps", size.name),
                 fmt::format("expected at least 1, found {}", size.steps));
    }
  }
  for (const auto& kind : all) {
    const bool has_table = std::find(there.begin(), there.end(), kind) != there.end();
    has_table ? kind->check(study, checks) : kind->check_without(study, checks);
  }
  check_study_parts(study, checks);
  checks.finish();
}

}  // namespace

void Problems::say(const std::string& key, const std::string& problem) {
  const Value* value = config_.find(key);
  const std::string place = value == nullptr ? "" : value->origin.text();
  problems_.push_back(fmt::format("{}: {}: {}", place.empty() ? study_.path : place, key, problem));
}

void Problems::arm_named(const std::string& key, const std::string& name) {
  if (study_.arm(name) != nullptr) return;
  std::vector<std::string> names;
  for (const StudyArm& arm : study_.arms) names.push_back(arm.arm.name);
  say(key, fmt::format("no arm is called '{}'{}", name, config::suggestion(name, names)));
}

void Problems::alone(const StudyKind& kind) {
  const std::vector<std::string> others = tables_before(kind);
  if (others.empty()) return;
  say(std::string(kind.table()),
      fmt::format("a study has one of {} and [{}]", fmt::join(others, ", "), kind.table()));
}

std::vector<std::string> Problems::tables_before(const StudyKind& kind) const {
  std::vector<std::string> tables;
  bool has_one = false;
  for (const auto& other : all_) {
    if (other.get() == &kind) break;
    if (!other->table().empty()) tables.push_back(fmt::format("[{}]", other->table()));
    has_one |= std::find(there_.begin(), there_.end(), other) != there_.end();
  }
  return has_one ? tables : std::vector<std::string>();
}

void Problems::finish() const {
  if (!problems_.empty()) fail_config(fmt::format("{}", fmt::join(problems_, "\n")));
}

bool says(const std::vector<std::string>& list, const std::string& name) {
  return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
}

const Size* StudyFile::size(const std::string& wanted) const {
  const auto found =
      std::find_if(sizes.begin(), sizes.end(), [&](const Size& s) { return s.name == wanted; });
  return found == sizes.end() ? nullptr : &*found;
}

const StudyArm* StudyFile::arm(const std::string& wanted) const {
  const auto found =
      std::find_if(arms.begin(), arms.end(), [&](const StudyArm& a) { return a.arm.name == wanted; });
  return found == arms.end() ? nullptr : &*found;
}

std::vector<config::TableSpecs> study_tables() {
  std::vector<config::TableSpecs> tables{{"", kStudyOptions},
                                         {"arm", kArmOptions, true},
                                         {"paper_value", kPaperOptions, true},
                                         {"simulate", kSimulationOptions},
                                         {"evaluate", kOtherDataOptions, true},
                                         {"agree", kAgreeOptions, true}};
  for (const char* size : kSizes) tables.push_back({fmt::format("size.{}", size), kSizeOptions});
  for (config::TableSpecs& table : difference_tables()) tables.push_back(std::move(table));
  for (config::TableSpecs& table : decode_tables()) tables.push_back(std::move(table));
  for (const auto& kind : study_kinds()) {
    for (config::TableSpecs& table : kind->file_tables()) tables.push_back(std::move(table));
  }
  return tables;
}

StudyFile read_study(const std::string& path) {
  const Config config = Config::load(path, {});
  const Value& root = config.root();
  std::vector<std::string> tables = study_part_names();
  tables.insert(tables.end(), {"size", "arm", "paper_value"});
  const std::vector<std::shared_ptr<StudyKind>> kinds = study_kinds();
  for (const auto& kind : kinds)
    if (!kind->table().empty()) tables.emplace_back(kind->table());
  const Resolution top = resolved(root, "study", kStudyOptions, tables);
  const Options& options = *top.options;

  StudyFile study;
  study.path = path;
  study.name = fs::path(path).stem().string();
  study.title = text_of(options, "title");
  study.paper = text_of(options, "paper");
  study.question = text_of(options, "question");
  study.base = text_of(options, "base");
  study.metric = text_of(options, "metric");
  study.lower_is_better = ab::lower_is_better(study.metric);
  study.baseline = text_of(options, "baseline");
  study.reference = text_of(options, "reference");
  study.figure = options.choice("figure", kFigures);
  study.figure_metric = text_of(options, "figure_metric");
  study.curves = texts_of(options, "curves");
  study.shares = texts_of(options, "shares");
  study.decisions = text_of(options, "decisions");
  study.alpha = options.real("alpha");
  study.margin = options.real("margin");
  study.notes = texts_of(options, "notes");

  if (const Value* sizes = root.find("size")) {
    const std::vector<std::string> names(std::begin(kSizes), std::end(kSizes));
    for (const Member& member : sizes->table()) {
      if (std::find(std::begin(kSizes), std::end(kSizes), member.key) == std::end(kSizes)) {
        fail_config(fmt::format("{}: there is no size '{}'{}; a study has quick, default, full and cuda",
                                member.origin.text(), member.key, config::suggestion(member.key, names)));
      }
    }
    for (const char* name : kSizes) {
      if (const Value* size = sizes->find(name)) study.sizes.push_back(read_size(name, *size));
    }
  }
  if (const Value* arms = root.find("arm")) {
    for (std::size_t i = 0; i < arms->array().size(); ++i)
      study.arms.push_back(read_arm(arms->array()[i], i));
  }
  for (StudyArm& arm : study.arms) {
    if (arm.baseline.empty()) arm.baseline = study.baseline;
  }
  if (const Value* values = root.find("paper_value")) {
    for (std::size_t i = 0; i < values->array().size(); ++i) {
      const Resolution found = resolved(values->array()[i], fmt::format("paper_value[{}]", i), kPaperOptions);
      study.paper_values.push_back({text_of(*found.options, "arm"), text_of(*found.options, "what"),
                                    text_of(*found.options, "source"), found.options->real("value")});
    }
  }
  const Problems::Kinds all(kinds.begin(), kinds.end());
  Problems::Kinds there;
  for (const auto& kind : kinds) {
    const Value* table = kind->table().empty() ? nullptr : root.find(kind->table());
    if (table == nullptr) continue;
    kind->read(*table);
    there.push_back(kind);
  }
  study.kind = there.empty() ? all.front() : there.front();
  read_study_parts(root, study);
  Problems problems(study, config, all, there);
  check(study, all, problems);
  return study;
}

std::vector<std::string> find_studies() {
  std::vector<std::string> paths;
  std::set<std::string> names;
  std::vector<std::string> folders{"."};
  for (const std::string& folder : data_directories()) folders.push_back(folder);
  for (const std::string& folder : folders) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(fs::path(folder) / "configs" / "studies", none)) {
      if (entry.path().extension() != ".toml") continue;
      if (names.insert(entry.path().stem().string()).second) paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    return fs::path(a).stem().string() < fs::path(b).stem().string();
  });
  return paths;
}

std::string study_path(const std::string& name) {
  if (fs::path(name).extension() == ".toml") return name;
  std::vector<std::string> names;
  for (const std::string& path : find_studies()) {
    names.push_back(fs::path(path).stem().string());
    if (names.back() == name) return path;
  }
  fail_config(
      fmt::format("tenon reproduce: there is no study '{}'{}; `tenon reproduce` lists them, and a "
                  "name that ends in .toml is a file",
                  name, config::suggestion(name, names)));
}

ab::Experiment experiment_of(const StudyFile& study, const Size& size) {
  ab::Experiment out;
  out.name = study.name;
  out.path = study.path;
  out.question = study.question;
  out.base = study.base;
  out.seeds = size.seeds;
  out.budget = {ab::Axis::kSteps, static_cast<double>(size.steps)};
  out.metric = study.metric;
  out.lower_is_better = study.lower_is_better;
  out.alpha = study.alpha;
  for (const StudyArm& arm : study.arms) {
    out.arms.push_back(arm.arm);
    out.arms.back().set.insert(out.arms.back().set.begin(), size.set.begin(), size.set.end());
    if (arm.steps_over > 1) out.arms.back().steps = (size.steps + arm.steps_over - 1) / arm.steps_over;
  }
  return out;
}

}  // namespace tenon::reproduce
