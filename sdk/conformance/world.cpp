// Whole runs around the component under test: a small configuration in which everything else is shipped or
// this kit's own.
#include "subject.hpp"

#include "base/child_process.hpp"
#include "config/words.hpp"
#include "plugin/probe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>

namespace tenon::conformance {
namespace {

constexpr const char* kBase = R"([run]
name = "conformance"
seed = 1
steps = 8
log_every = 1
eval_every = 4
eval_batches = 2
deadline = 10
[device]
type = "cpu"
threads = 1
[parallel]
ranks = 1
[transport]
type = "thread"
[data]
type = "conformance_data"
[model]
type = "conformance_net"
[precision]
type = "fp32"
[optimizer]
type = "sgd"
lr = 0.05
[schedule]
type = "constant"
[sync]
type = "ddp"
[recovery]
type = "full"
every = 3
[[observe]]
type = "conformance_ending"
)";

/// Returns `table` with the type in front.
Value with_type(const Value& table, const std::string& type) {
  Value result;
  result.set("type", Value(type), {});
  for (const Member& member : table.table()) result.set(member.key, member.value, {});
  return result;
}

Value texts(const std::vector<std::string>& words) {
  Value::Array list;
  for (const std::string& word : words) list.emplace_back(word);
  return Value(std::move(list));
}

/// Inputs of usual layers, tried in this order until one is accepted.
const std::vector<std::vector<Input>> kUsualInputs = {
    {{{4, 6}}},
    {{{4, 5, 6}}},
    {{{2, 3, 8, 8}}},
    {{{4, 6}}, {{4, 6}}},
    {{{4, 6}}, {{4}, false, 6}},
    {{{4, 5}, false, 7}},
    {{{4, 5, 6}}, {{4, 5}, false, 6}},
};

/// Fields and attributes on which usual models are built.
struct Fields {
  std::vector<std::string> fields, attributes;
};
const std::vector<Fields> kUsualFields = {
    {{"x:real:8", "t:real:1"}, {}},
    {{"inputs:real:8", "targets:i32::3"}, {"classes=3"}},
    {{"image:real:1x28x28", "label:i32::10"}, {"classes=10"}},
    {{"image:real:3x16x16", "label:i32::10"}, {"classes=10"}},
    {{"tokens:i32:8:16", "targets:i32:8:16"}, {"vocabulary=16"}},
    {{"dense:real:4", "ids:i32:3:10", "labels:i32::2"}, {"rows.0=10", "rows.1=10", "rows.2=10"}},
};

Value layer_data(const std::vector<Input>& inputs) {
  std::vector<std::string> fields;
  for (const Input& input : inputs) {
    const std::vector<std::int64_t> sample(input.shape.begin() + 1, input.shape.end());
    fields.push_back(fmt::format("in{}:{}:{}:{}", fields.size(), input.real ? "real" : "i32",
                                 fmt::join(sample, "x"), input.below));
  }
  Value data;
  data.set("type", Value(std::string("conformance_data")), {});
  data.set("fields", texts(fields), {});
  data.set("batch", Value(inputs[0].shape[0]), {});
  data.set("planted", Value(false), {});
  return data;
}

/// The use of a layer's output in a run: a loss of it, nothing because it is the loss, or (metrics) the loss
/// is of its inputs.
enum class Ending { kAbsorbed, kOwn, kBeside };

Value::Array layer_nodes(const std::string& type, const Value& options, const std::vector<Input>& inputs,
                         Ending ending) {
  Value node = with_type(options, type);
  Value::Array nodes;
  std::vector<std::string> names, read;
  for (const Input& input : inputs) {
    names.push_back(fmt::format("in{}", names.size()));
    read.push_back(names.back());
    if (!input.loss) continue;
    read.back() = "loss_of_" + names.back();
    Value part;
    part.set("name", Value(read.back()), {});
    part.set("type", Value(std::string("conformance_absorb")), {});
    part.set("inputs", texts({names.back()}), {});
    part.set("metric", Value(read.back()), {});
    nodes.push_back(part);
  }
  node.set("name", Value(std::string("subject")), {});
  node.set("inputs", texts(read), {});
  nodes.push_back(node);
  if (ending == Ending::kOwn) return nodes;
  Value loss;
  loss.set("name", Value(std::string("loss")), {});
  loss.set("type", Value(std::string("conformance_absorb")), {});
  loss.set("inputs", texts(ending == Ending::kBeside ? names : std::vector<std::string>{"subject"}), {});
  nodes.push_back(loss);
  return nodes;
}

/// A model of two tables, whose weights and optimizer rows the tier holds.
void put_tables(Value& root, const Value& tier) {
  const Value tables = Config::parse(R"([data]
type = "conformance_data"
fields = ["ids:i32:2x3:40"]
planted = false
[model]
type = "conformance_net"
layer = [{name = "bag", type = "embedding_bag", rows = [60, 40], width = 4, inputs = ["ids"]},
         {name = "loss", type = "conformance_absorb", inputs = ["bag"]}]
[optimizer]
type = "rowwise_adagrad"
lr = 0.05
[tables]
place = [{match = "*"}]
)",
                                     "conformance run", {})
                           .root();
  for (const Member& member : tables.table()) root.set(member.key, member.value, {});
  root.find("tables")->find("place")->array()[0].set("tier", tier, {});
}

/// A tier may refuse the device of the run, or rows like these.
void require_placed(Subject& subject, const Config& config) {
  try {
    subject.check(config);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    not_applicable(fmt::format("it refuses the tables of the kit's run: {}", brief(error.what())));
  }
}

/// Parses the configuration as text, then applies --set words over it.
Config reparse(const Value& root, const std::vector<std::string>& sets) {
  return Config::parse(to_toml(root, false), "conformance run", sets);
}

}  // namespace

std::vector<std::vector<Input>> Subject::inputs_to_try() const {
  if (!spec_.given.inputs.empty()) return {spec_.given.inputs};
  return kUsualInputs;
}

void Subject::check(const Config& config) const {
  Runtime runtime;
  runtime.add_plugin(world_plugin());
  runtime.registry().discover_only(plugin_files());
  runtime.check(config, nullptr);
}

Config Subject::run_config(const RunRequest& request) {
  Value root = Config::parse(kBase, "conformance run", {}).root();
  root.find("device")->set("type", Value(spec_.device), {});
  root.find("parallel")->set("ranks", Value(std::int64_t{request.ranks}), {});
  root.find("run")->set("steps", Value(std::int64_t{request.steps}), {});
  if (request.ranks == 1) root.find("sync")->set("type", Value(std::string("none")), {});
  Value& ending = root.find("observe")->array()[0];
  ending.set("stop_after", Value(std::int64_t{request.stop_after}), {});
  ending.set("kill_after", Value(std::int64_t{request.kill_after}), {});
  if (request.count_allocations) {
    ending.set("count_from", Value(std::int64_t{request.steps / 2}), {});
    ending.set("count_to", Value(std::int64_t{request.steps - 1}), {});
  }

  std::vector<std::string> sets = spec_.given.sets;
  sets.insert(sets.end(), request.sets.begin(), request.sets.end());
  const std::string name(config::kind_name(kind_));
  const Value own = with_type(spec_.given.options, type());
  if (name == "dataset") {
    root.set("data", own, {});
    root.find("model")->set("type", Value(std::string("conformance_anything")), {});
    return reparse(root, sets);
  }
  if (name == "observer") {
    root.find("observe")->array().push_back(own);
    return reparse(root, sets);
  }
  if (name == "tier") {
    put_tables(root, own);
    Config config = reparse(root, sets);
    require_placed(*this, config);
    return config;
  }
  if (name != "layer" && name != "model") {
    if (root.find(name) == nullptr) {
      not_applicable(fmt::format("this kit knows no place for a component of kind {} in a run", kind_));
    }
    root.set(name, own, {});
    return reparse(root, sets);
  }

  // The inputs that a layer or a model accepts are found by trying.
  std::string refused;
  const auto fits = [&](const Value& candidate) {
    std::string text;
    try {
      check(reparse(candidate, sets));
    } catch (const Error& error) {
      text = brief(error.what());
    }
    if (refused.find("\n  " + text) == std::string::npos) refused += "\n  " + text;
    return text.empty();
  };
  if (name == "model") {
    root.set("model", own, {});
    if (fits(root)) return reparse(root, sets);
    for (const Fields& usual : kUsualFields) {
      Value& data = *root.find("data");
      data.set("fields", texts(usual.fields), {});
      data.set("attributes", texts(usual.attributes), {});
      if (fits(root)) return reparse(root, sets);
    }
  } else {
    for (const std::vector<Input>& inputs : inputs_to_try()) {
      for (const Ending ending : {Ending::kOwn, Ending::kAbsorbed, Ending::kBeside}) {
        root.set("data", layer_data(inputs), {});
        root.find("model")->set("layer", Value(layer_nodes(type(), spec_.given.options, inputs, ending)), {});
        if (fits(root)) return reparse(root, sets);
      }
    }
  }
  fail(fmt::format(
      "no run could be built around {}; write a [[case]] for it in conformance.toml, with its {}. Tried:{}",
      component(), name == "layer" ? "inputs" : "data (set = [\"data.type=...\"])", refused));
}

RunResult Subject::train(const RunRequest& request) {
  return train(run_config(request), request);
}

RunResult Subject::train(const Config& config, const RunRequest& request) {
  const std::filesystem::path folder = scratch() / request.folder;
  if (request.kill_after > 0) {
    const std::filesystem::path text = scratch() / "killed.toml";
    std::ofstream(text) << to_toml(config.root(), false);
    std::vector<std::string> arguments{"train", spec_.file.string(), text.string(), folder.string(),
                                       request.resume ? "resume" : "new"};
    arguments.insert(arguments.end(), spec_.plugins.begin(), spec_.plugins.end());
    const base::ChildResult child = base::run_child({.program = plugin::helper_program("tenon_conformance"),
                                                     .arguments = std::move(arguments),
                                                     .environment = {}},
                                                    std::chrono::seconds(20));
    RunResult result;
    const bool killed = child.ended && WIFSIGNALED(child.status) && WTERMSIG(child.status) == SIGKILL;
    result.status = killed ? "killed" : "not killed";
    result.error = child.answer;
    return result;
  }
  Runtime runtime;
  runtime.add_plugin(world_plugin());
  runtime.registry().discover_only(plugin_files());
  TrainRequest train;
  train.run_dir = folder.string();
  train.resume = request.resume;
  train.quiet = true;
  train.handle_signals = request.stop_after > 0;
  train.command_line = "tenon conformance";
  return runtime.train(config, train);
}

}  // namespace tenon::conformance
