// tenon graph: the nodes, parameters and linear sites of a configuration's model, after its edits; as a
// table, JSON, Graphviz or a drawing. Builds the graph and trains nothing.
#include "built_model.hpp"
#include "command_line.hpp"

#include "report/model_drawing.hpp"
#include "report/model_graph.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/runtime.hpp>

#include <iostream>

namespace tenon::cli {
namespace {

void declare_graph(po::options_description& options) {
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  change one value, e.g. --set model.layers=2 (repeatable)");
  options.add_options()("json", "print the graph as JSON");
  options.add_options()("dot", "print the graph for Graphviz");
  options.add_options()("svg", po::value<std::string>(), "FILE  write a drawing");
}

int run_graph(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kGraph, {"config"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("config") == 0)
    fail_config("tenon graph: which CONFIG? usage: tenon graph CONFIG [options]");
  if (parsed.values.count("json") > 0 && parsed.values.count("dot") > 0)
    fail_config("tenon graph: --json and --dot exclude each other; choose one");
  Runtime runtime;
  std::vector<std::string> sets;
  if (parsed.values.count("set") > 0) sets = parsed.values["set"].as<std::vector<std::string>>();
  const Config config = load_run(runtime, parsed.values["config"].as<std::vector<std::string>>()[0], sets);
  config::CheckedRun checked = config::check_run(config, runtime.registry(), {});
  const report::ModelGraph graph = read_model_graph(runtime.registry(), checked);
  if (parsed.values.count("svg") > 0) {
    const auto path = parsed.values["svg"].as<std::string>();
    make_posix_files()->write_text_atomically(path, report::graph_svg(graph));
    std::cout << path << "\n";
    if (parsed.values.count("json") == 0 && parsed.values.count("dot") == 0) return 0;
  }
  std::cout << (parsed.values.count("json") > 0  ? report::graph_json(graph)
                : parsed.values.count("dot") > 0 ? report::graph_dot(graph)
                                                 : report::graph_text(graph));
  return 0;
}

}  // namespace

const Command kGraph{"graph", "CONFIG [options]",
                     "Show the model's graph: nodes, shapes, parameters, linear sites.", run_graph,
                     declare_graph};

}  // namespace tenon::cli
