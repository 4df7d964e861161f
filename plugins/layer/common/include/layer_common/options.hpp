// Options that layers of several plugins have in common, so that each name has one range, default and
// meaning. A layer passes the text where it depends on the layer. Declares options only; each layer reads its
// own.
#pragma once

#include <tenon/options.hpp>

namespace tenon::layer_common {

inline constexpr double kMostFeatures = 2147483647;
inline constexpr double kMostExtent = 32767;

// The weight and the bias of a linear map or a convolution.

/// `meaning`: the dimension of the result that has so many elements.
constexpr OptionSpec features(const char* meaning) {
  return option::integer("features", nullptr).mandatory().between(1, kMostFeatures).doc_text(meaning);
}
constexpr OptionSpec bias() {
  return option::boolean("bias", "true").doc_text("add a learned bias, zero at first");
}
/// Without a value the initial weights are uniform; `meaning` gives their range.
constexpr OptionSpec init_scale(const char* meaning) {
  return option::real("init_scale", nullptr).at_least(0).doc_text(meaning);
}
constexpr OptionSpec module_kind(const char* default_toml) {
  return option::text("module", default_toml).doc_text("module kind that the precision policy sees");
}
constexpr OptionSpec weight_name() {
  return option::text("weight", nullptr)
      .doc_text("name of the weight, to tie it to another layer's; absent: NODE.weight");
}

// The window of a convolution or a pool, in one or several dimensions.

constexpr OptionSpec kernel(const char* meaning) {
  return option::integers("kernel", nullptr).mandatory().between(1, kMostExtent).doc_text(meaning);
}
constexpr OptionSpec stride() {
  return option::integers("stride", "[1]")
      .between(1, kMostExtent)
      .doc_text("distance of neighbouring windows");
}
/// The stride of a pool.
constexpr OptionSpec stride_or_kernel() {
  return option::integers("stride", nullptr)
      .between(1, kMostExtent)
      .doc_text("distance of neighbouring windows; absent: the kernel, so that they do not overlap");
}
constexpr OptionSpec padding(const char* meaning) {
  return option::integers("padding", "[0]").between(0, kMostExtent).doc_text(meaning);
}
constexpr OptionSpec dilation() {
  return option::integers("dilation", "[1]")
      .between(1, kMostExtent)
      .doc_text("distance of neighbouring elements of a window");
}

// Convolutions only.

constexpr OptionSpec groups() {
  return option::integer("groups", "1")
      .between(1, kMostFeatures)
      .doc_text("channels are split into this many groups, each with filters of its own");
}
constexpr OptionSpec filter_init_scale() {
  return init_scale(
      "standard deviation of the normal initial weights; absent: uniform within 1 / sqrt(k) of "
      "zero, k = channels of a group x kernel");
}
constexpr OptionSpec chunk(const char* meaning) {
  return option::integer("chunk", "0").between(0, kMostFeatures).in_unit("samples").doc_text(meaning);
}

// Losses.

constexpr OptionSpec metric_name() {
  return option::text("metric", "\"loss\"")
      .doc_text("name of the metric; the trained objective is called loss");
}

}  // namespace tenon::layer_common
