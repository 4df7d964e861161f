// Requirements of this plugin's models for the data: images, labels and the number of classes; and their
// options.
#pragma once

#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

#include <string>
#include <vector>

namespace tenon::vision {

inline constexpr OptionSpec kClasses = option::integer("classes", nullptr)
                                           .between(2, 2147483647)
                                           .doc_text("columns of the result; absent: the data's 'classes'");
inline constexpr OptionSpec kImage =
    option::text("image", "\"image\"").doc_text("data field of the images, real [channels, height, width]");
inline constexpr OptionSpec kLabel =
    option::text("label", "\"label\"").doc_text("data field of the classes, i32, -1 = ignored");
inline constexpr OptionSpec kLabelSmoothing =
    option::real("label_smoothing", "0")
        .between(0, 1)
        .doc_text("share of the wanted distribution that is spread evenly over all classes");

/// Shape [channels, height, width] of the field that the option `image` names.
Shape image_shape(const Options& options, const DataInfo& data, std::string_view model);
/// Columns of the result; checks the field that the option `label` names.
std::int64_t class_count(const Options& options, const DataInfo& data, std::string_view model);

/// Appends nodes to a graph; a node's value has its name.
class Chain {
 public:
  explicit Chain(std::string value) : value_(std::move(value)) {}

  /// Adds a node that reads the current value and becomes it.
  void add(std::string name, std::string type, std::vector<NamedOption> options) {
    add(std::move(name), std::move(type), {value_}, std::move(options));
  }
  void add(std::string name, std::string type, std::vector<std::string> inputs,
           std::vector<NamedOption> options) {
    graph_.nodes.push_back({name, std::move(type), std::move(inputs), std::move(options)});
    value_ = std::move(name);
  }
  const std::string& value() const { return value_; }
  void go_back(std::string value) { value_ = std::move(value); }
  GraphSpec finish() { return std::move(graph_); }

 private:
  std::string value_;
  GraphSpec graph_;
};

}  // namespace tenon::vision
