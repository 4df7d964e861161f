// Model `fno`: the Fourier neural operator (Li et al. 2021) over 1 to 4 dimensions. It maps one real field
// [channels, points...] to another over the same points; no weight depends on their number, so a model
// trained on one grid runs on another.
#include <fmt/format.h>
#include <tenon/error.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

namespace tenon::fno {

class Fno final : public Model {
 public:
  static constexpr const char* kActivations[] = {"gelu", "relu", "silu", nullptr};
  static constexpr const char* kNorms[] = {"none", "batch", nullptr};
  static constexpr const char* kLosses[] = {"relative_l2", "mse", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("width", "32").between(1, 2147483647).doc_text("channels of the layers"),
      option::integers("modes", "[12]")
          .between(1, 2147483647)
          .doc_text("modes kept per dimension, or one number for all: at most half of the points, padding "
                    "included, and of the last dimension one more"),
      option::integer("layers", "4").between(1, 10000).doc_text("spectral convolutions"),
      option::text("norm", "\"none\"")
          .one_of(kNorms)
          .doc_text("batch: a batch norm after the sum of spectral and linear part"),
      option::text("activation", "\"gelu\"")
          .one_of(kActivations)
          .doc_text("after every layer but the last, and within the projection; gelu is the exact one"),
      option::reals("padding", "[0]")
          .between(0, 4)
          .doc_text("zeros after the last point, as a share of the side and rounded to points, per dimension "
                    "or one number for all"),
      option::boolean("coordinates", "true").doc_text("adds i / n of every dimension to the channels of x"),
      option::integer("projection", "128").between(1, 2147483647).doc_text("hidden width after the layers"),
      option::integer("refine", "1")
          .between(1, 64)
          .doc_text("points of the target per point of the input along every dimension; what lies between is "
                    "interpolated linearly"),
      option::text("loss", "\"relative_l2\"").one_of(kLosses).doc_text("loss that is trained"),
      option::text("input", "\"x\"").doc_text("data field to read, real [channels, points...]"),
      option::text("target", "\"y\"").doc_text("data field to predict, real [channels, points...]"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "fno", .summary = "Fourier neural operator for fields of 1 to 4 dimensions", .options = kOptions};

  explicit Fno(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  std::vector<std::int64_t> padding(std::span<const std::int64_t> points) const;

  const Options& options_;  // outlives the model
};

namespace {

// Model `fno`: coordinates, lifting, padding, layers, cropping, projection, loss.

constexpr int kMaxDims = 4;

const DataField& find_field(const DataInfo& data, std::string_view name, const char* option) {
  std::vector<std::string> known;
  for (const DataField& field : data.fields) {
    const int dims = field.shape.rank() - 1;
    if (field.name == name && dtype_is_real(field.dtype) && dims >= 1 && dims <= kMaxDims) return field;
    known.push_back(fmt::format("{} ({} {})", field.name, dtype_name(field.dtype), field.shape.text()));
  }
  fail_config(
      fmt::format("model fno: option '{}' must name a data field that is real [channels, points...] with "
                  "1 to {} dimensions of points, found '{}'; the data offers: {}; name another, or change "
                  "types and shapes of [data]",
                  option, kMaxDims, name, fmt::join(known, ", ")));
}

/// Appends nodes of which each reads the one before.
class Chain {
 public:
  explicit Chain(std::string value) : value_(std::move(value)) {}

  void add(std::string name, std::string type, std::vector<NamedOption> options) {
    add(std::move(name), std::move(type), {value_}, std::move(options));
  }
  void add(std::string name, std::string type, std::vector<std::string> inputs,
           std::vector<NamedOption> options) {
    graph_.nodes.push_back({name, std::move(type), std::move(inputs), std::move(options)});
    value_ = std::move(name);
  }
  void activate(std::string name, std::string_view kind) {
    std::vector<NamedOption> options;
    if (kind == "gelu") options.push_back({"approximate", std::string("none")});
    add(std::move(name), std::string(kind), std::move(options));
  }
  void go_back(std::string value) { value_ = std::move(value); }
  const std::string& value() const { return value_; }
  GraphSpec finish() { return std::move(graph_); }

 private:
  std::string value_;
  GraphSpec graph_;
};

}  // namespace

std::vector<std::int64_t> Fno::padding(std::span<const std::int64_t> points) const {
  const auto shares = options_.reals("padding");
  if (shares.size() != 1 && shares.size() != points.size())
    fail_config(fmt::format("model fno: expected padding for {} dimension{} or one number for all, found {}",
                            points.size(), points.size() == 1 ? "" : "s", shares.size()));
  std::vector<std::int64_t> widths;
  for (std::size_t d = 0; d < points.size(); ++d)
    widths.push_back(std::llround(shares[shares.size() == 1 ? 0 : d] * static_cast<double>(points[d])));
  return widths;
}

GraphSpec Fno::build(const DataInfo& data) {
  const DataField& x = find_field(data, options_.text("input"), "input");
  const DataField& y = find_field(data, options_.text("target"), "target");
  const auto points = x.shape.extents().subspan(1), targets = y.shape.extents().subspan(1);
  const std::int64_t refine = options_.integer("refine");
  if (!std::equal(points.begin(), points.end(), targets.begin(), targets.end(),
                  [&](std::int64_t p, std::int64_t t) { return refine * p == t; }))
    fail_config(fmt::format(
        "model fno: data fields '{}' and '{}' must have {} after their channels, found {} and {}", x.name,
        y.name,
        refine == 1 ? "the same points" : fmt::format("points in the ratio 1 : {} (option 'refine')", refine),
        x.shape.text(), y.shape.text()));
  const std::int64_t width = options_.integer("width"), layers = options_.integer("layers");
  const auto modes = options_.integers("modes");
  const std::string_view activation = options_.text("activation");
  const std::vector<std::int64_t> widths = padding(points);
  const bool pads = std::any_of(widths.begin(), widths.end(), [](std::int64_t w) { return w > 0; });

  Chain chain(x.name);
  if (options_.boolean("coordinates")) chain.add("coordinates", "coordinates", {});
  chain.add("lift", "channel_linear", {{"features", width}});
  if (pads) chain.add("pad", "pad_far", {{"widths", widths}});
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string name = fmt::format("layers.{}", i), before = chain.value();
    chain.add(name + ".spectral", "spectral_conv",
              {{"modes", std::vector<std::int64_t>(modes.begin(), modes.end())}});
    chain.go_back(before);
    chain.add(name + ".linear", "channel_linear", {{"features", width}});
    chain.add(name + ".sum", "residual", {name + ".spectral", name + ".linear"}, {});
    if (options_.text("norm") == "batch") chain.add(name + ".norm", "batch_norm", {});
    if (i + 1 < layers) chain.activate(name + ".act", activation);
  }
  if (pads) chain.add("crop", "crop_far", {{"widths", widths}});
  chain.add("project", "channel_linear", {{"features", options_.integer("projection")}});
  chain.activate("project.act", activation);
  chain.add("out", "channel_linear", {{"features", y.shape[0]}, {"module", std::string("head")}});
  if (refine > 1) chain.add("refined", "refine", {{"factor", refine}});
  const std::string result = chain.value();
  const auto measure = [&](const std::string& name, const std::string& type, const std::string& metric) {
    std::vector<NamedOption> options{{"metric", metric}};
    if (type == "relative_l2") {
      options.push_back({"offset", y.offset});
      options.push_back({"scale", y.scale});
    }
    chain.add(name, type, {result, y.name}, std::move(options));
  };
  measure("error", "relative_l2", "relative_l2");
  measure("loss", std::string(options_.text("loss")), "loss");
  return chain.finish();
}

}  // namespace tenon::fno

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.model_fno",
                               .version = "0.1.0",
                               .summary = "Fourier neural operators"},
             tenon::fno::Fno)
