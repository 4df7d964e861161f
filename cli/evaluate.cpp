// tenon evaluate: a trained run's metrics on the validation samples of its own data, or of other data that
// fits its weights; and the values of its nodes for every sample, for other programs.
#include "command_line.hpp"
#include "trained_graph.hpp"

#include "base/json_writer.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/npy.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

namespace tenon::cli {
namespace {

std::vector<Output> parse_outputs(const po::variables_map& values) {
  std::vector<Output> outputs;
  if (values.count("write") == 0) return outputs;
  for (const std::string& text : values["write"].as<std::vector<std::string>>()) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      fail_config(fmt::format("tenon evaluate: --write is '{}', expected NODE=FILE.npy", text));
    outputs.push_back({text.substr(0, equals), text.substr(equals + 1), {}, {}});
  }
  return outputs;
}

void write_outputs(FileSystem& files, std::vector<Output>& outputs, std::int64_t samples) {
  for (Output& output : outputs) {
    std::vector<std::int64_t> extents{samples};
    for (const std::int64_t extent : output.shape.extents()) extents.push_back(extent);
    write_npy(files, output.file,
              {output.values.data(), Shape(std::span<const std::int64_t>(extents)), DType::kF32,
               MemorySpace::kHost});
  }
}

void declare_evaluate(po::options_description& options) {
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  over the run's configuration: other data, another device");
  options.add_options()("write", po::value<std::vector<std::string>>()->composing(),
                        "NODE=FILE.npy  writes a node's value for every sample, as f32");
  options.add_options()("step", po::value<std::int64_t>(),
                        "N  checkpoint of slot N instead of the newest valid one");
  options.add_options()("json", "print what was measured as JSON");
}

int run_evaluate(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kEvaluate, {"run"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("run") == 0) fail_config("tenon evaluate: usage: tenon evaluate RUN [options]");
  std::vector<Output> outputs = parse_outputs(parsed.values);
  std::vector<std::string> sets;
  if (parsed.values.count("set") > 0) sets = parsed.values["set"].as<std::vector<std::string>>();
  std::optional<std::int64_t> step;
  if (parsed.values.count("step") > 0) step = parsed.values["step"].as<std::int64_t>();

  TrainedRun trained("evaluate", parsed.values["run"].as<std::vector<std::string>>()[0], sets);
  const auto stored = trained.open(step);
  TrainedGraph graph(trained, *stored, [](auto& model, const DataInfo& data) { return model->build(data); });
  const std::vector<Measured> values = evaluate(graph, outputs);
  const std::int64_t samples = graph.data().info().val_samples;
  write_outputs(trained.files(), outputs, samples);

  if (parsed.values.count("json") == 0) {
    std::cout << fmt::format("step {} of {}, {} samples\n", stored->step(), trained.folder(), samples);
    for (const Measured& value : values)
      std::cout << fmt::format("val/{} {:.6g}\n", value.metric, value.value);
    for (const Output& output : outputs) std::cout << output.file << "\n";
    return 0;
  }
  JsonWriter json;
  json.begin_object();
  json.member("run", trained.folder());
  json.member("step", stored->step());
  json.member("samples", samples);
  json.begin_object("metrics");
  for (const Measured& value : values) json.member("val/" + value.metric, value.value);
  json.end_object();
  json.end_object();
  std::cout << json.take();
  return 0;
}

}  // namespace

const Command kEvaluate{"evaluate", "RUN [options]", "Measure a trained run again, also on other data.",
                        run_evaluate, declare_evaluate};

}  // namespace tenon::cli
