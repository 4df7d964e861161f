// An experiment file as Experiment. Keys, types and unknown-key errors go through the core's configuration
// layer.
#include "ab/experiment.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <filesystem>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;

constexpr OptionSpec kExperimentOptions[] = {
    option::text("question", "\"\"").doc_text("what the study asks, in one sentence"),
    option::text("base", nullptr).mandatory().doc_text("configuration that every arm extends"),
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
    option::texts("extends", "[]").doc_text("configurations laid over the base, in order"),
    option::texts("set", "[]").doc_text("\"a.b=c\", as on the command line"),
};

std::string beside(const std::string& file, std::string_view path) {
  const fs::path given(path);
  return fs::absolute(given.is_absolute() ? given : fs::path(file).parent_path() / given)
      .lexically_normal()
      .string();
}

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

Arm read_arm(const Value& table, std::size_t index, const std::string& path) {
  OptionRequest request{
      .table = table, .owner = fmt::format("arm[{}]", index), .specs = option_list(kArmOptions)};
  const Resolution resolved = resolve_options(request);
  const Options& options = *resolved.options;
  Arm arm;
  arm.name = options.text("name");
  for (const std::string& file : texts_of(options, "extends")) arm.extends.push_back(beside(path, file));
  arm.set = texts_of(options, "set");
  return arm;
}

}  // namespace

Experiment read_experiment(const std::string& path, const std::vector<std::string>& sets) {
  const Config config = Config::load(path, sets);
  OptionRequest request{.table = config.root(),
                        .owner = "experiment",
                        .specs = option_list(kExperimentOptions),
                        .other_keys = {"arm", "budget"}};
  const Resolution resolved = resolve_options(request);
  const Options& options = *resolved.options;

  Experiment e;
  e.path = fs::absolute(path).lexically_normal().string();
  e.name = fs::path(path).stem().string();
  e.question = options.text("question");
  e.base = beside(path, options.text("base"));
  const auto seeds = options.integers("seeds");
  e.seeds.assign(seeds.begin(), seeds.end());
  e.metric = options.text("metric");
  e.lower_is_better =
      options.has("lower_is_better") ? options.boolean("lower_is_better") : lower_is_better(e.metric);
  e.secondary = texts_of(options, "secondary");
  if (options.has("margin")) e.margin = options.real("margin");
  if (options.has("target")) e.target = options.real("target");
  e.decide_by = options.choice("decide_by", kDecideBy);
  e.test = options.choice("test", kTests);
  e.alpha = options.real("alpha");
  e.budget = read_budget(config.root(), path);
  if (const Value* arms = config.root().find("arm")) {
    if (!arms->is_array())
      fail_config(fmt::format("{}: arms are written as [[arm]] tables", arms->origin.text()));
    for (std::size_t i = 0; i < arms->array().size(); ++i)
      e.arms.push_back(read_arm(arms->array()[i], i, path));
  }
  validate(e);
  return e;
}

}  // namespace tenon::ab
