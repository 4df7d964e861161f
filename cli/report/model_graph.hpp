// A model's graph as facts: nodes, what they read and make, their parameters and linear sites. Written as a
// table, as JSON and for Graphviz; model_drawing.hpp draws it. Knows no layer and computes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::report {

struct ModelGraph {
  struct Value {
    std::string name, shape, dtype;  ///< "fc1" or "fc1:1", "[64, 10]", "f32"
  };
  struct Parameter {
    std::string name, shape, dtype, role;  ///< role: "trained", "frozen", "buffer" or "row table"
    std::int64_t elements = 0;
    bool tied = false;  ///< several nodes use it
  };
  /// A product of m rows, k -> n columns.
  struct Site {
    std::string module, weight;
    std::int64_t m = 0, n = 0, k = 0;
    bool unquantized = false;  ///< the precision policy leaves it as it is
  };
  struct Node {
    std::string name, type;
    std::vector<std::string> inputs;
    std::vector<Value> outputs;
    std::vector<Parameter> parameters;
    std::vector<Site> sites;
  };

  std::string model;              ///< type of [model]
  std::string precision = "f32";  ///< type of [precision]
  std::vector<Value> fields;
  std::vector<Node> nodes;
  std::int64_t elements = 0;  ///< of all parameters and buffers, tied ones once
  std::int64_t trained = 0;   ///< of parameters that are trained, tied ones once
  std::int64_t batch = 0;     ///< samples of a rank's micro-batch
  std::int64_t tokens_per_sample = 1;
};

std::string graph_text(const ModelGraph& graph);
std::string graph_json(const ModelGraph& graph);
/// For Graphviz.
std::string graph_dot(const ModelGraph& graph);

/// The node or data field of an input: "split" of "split:1".
std::string source_of(const std::string& input);

/// 1234567 as "1,234,567".
std::string grouped_digits(std::int64_t number);

}  // namespace tenon::report
