// Contract `model/1`: a blueprint that turns options and a description of the data into a graph of layers.
// The graph is a plain structure that can be printed, edited in TOML and rebuilt.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/options.hpp>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

TENON_ABI_BEGIN

/// One option of a layer as a blueprint writes it.
using OptionValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                 std::vector<double>, std::vector<std::string>>;
struct NamedOption {
  std::string name;
  OptionValue value;
};

/// A node: `type` is a layer component, `inputs` name values: a data field ("tokens"), or "node" / "node:1"
/// for outputs.
struct NodeSpec {
  std::string name;
  std::string type;
  std::vector<std::string> inputs;
  std::vector<NamedOption> options;
};

/// Nodes in an order in which every input is known. Exactly one node is the trained loss (a LossLayer of
/// metric "loss").
struct GraphSpec {
  std::vector<NodeSpec> nodes;
};

class Model {
 public:
  using Interface = Model;
  static constexpr const char* kKind = "model/1";
  virtual ~Model();
  /// Pure in options and data. Throws Error(kConfig) when the data does not fit (no field "tokens", ...).
  virtual GraphSpec build(const DataInfo& data) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
