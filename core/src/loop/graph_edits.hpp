// Edits of a model's graph in TOML: [[model.layer]] writes it out, [[model.override]] changes options of the
// nodes that a pattern matches, [[model.remove]] takes such nodes out, [[model.insert]] adds nodes after or
// before them, or after a data field.
#pragma once

#include <tenon/config.hpp>
#include <tenon/model.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::train {

/// Source positions of a graph's edits, for errors that are found when its layers are made, and the run's
/// policy for layers that have a graph of their own.
class NodePlaces {
 public:
  static constexpr const char* kId = "tenon.node_places/1";  ///< of the host that layers are made with

  void set_node(const std::string& node, const Origin& table) { nodes_[node] = table; }
  void set_option(const std::string& node, const std::string& option, const Origin& value) {
    options_[{node, option}] = value;
  }
  /// "run.toml:12:3: " of an option, or of the node's last table where `option` is ""; "" for what the model
  /// wrote.
  std::string text(const std::string& node, const std::string& option) const;

  /// The run's table [precision], which an option of kind precision/1 takes where a node has none. Null: the
  /// run has none.
  void set_precision(const Value* table) {
    precision_ = table == nullptr ? std::nullopt : std::optional(*table);
  }
  const Value* precision() const { return precision_ ? &*precision_ : nullptr; }

 private:
  std::map<std::string, Origin> nodes_;
  std::map<std::pair<std::string, std::string>, Origin> options_;
  std::optional<Value> precision_;
};

/// Applies `edits` (the tables layer, override, remove and insert as written) to what `blueprint` returns,
/// which is not called where [[model.layer]] replaces it. `data` has the fields that nodes may read. Errors
/// name file and line. `places` is filled if given.
GraphSpec edit_graph(const std::function<GraphSpec()>& blueprint, const DataInfo& data, const Value& edits,
                     NodePlaces* places = nullptr);

}  // namespace tenon::train
