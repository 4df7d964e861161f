// Small graphs of the layers for images and of their normalisations and losses, for cases.hpp.
#pragma once

#include "case.hpp"

namespace tenon::testing {

/// Values 0.1 apart in random order, so that neither a difference nor a rounding changes which is greatest.
inline TestField apart(TestField field) {
  std::vector<std::size_t> order(field.values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return field.values[a] < field.values[b]; });
  for (std::size_t rank = 0; rank < order.size(); ++rank)
    field.values[order[rank]] = 0.1 * (static_cast<double>(rank) - static_cast<double>(order.size()) / 2);
  return field;
}

inline LayerCase conv_case(std::string name, const Shape& x, std::vector<NamedOption> options) {
  return single(std::move(name), "conv2d", std::move(options), {real_field("x", x)});
}

inline std::vector<LayerCase> image_cases() {
  using Integer = std::int64_t;
  using Pair = std::vector<std::int64_t>;
  const Shape image{2, 3, 5, 4};
  std::vector<LayerCase> cases;
  const auto add = [&](LayerCase c) { cases.push_back(std::move(c)); };
  add(conv_case("conv2d", image, {{"features", Integer{4}}, {"kernel", Pair{3}}, {"padding", Pair{1}}}));
  add(conv_case("conv2d_strided", {2, 2, 6, 5},
                {{"features", Integer{3}},
                 {"kernel", Pair{3, 2}},
                 {"stride", Pair{2, 1}},
                 {"padding", Pair{1, 0}},
                 {"bias", false}}));
  add(conv_case("conv2d_chunks", {3, 2, 4, 3},
                {{"features", Integer{3}}, {"kernel", Pair{2}}, {"chunk", Integer{2}}}));
  add(conv_case("conv2d_groups", {3, 4, 5, 5},
                {{"features", Integer{6}},
                 {"kernel", Pair{3}},
                 {"padding", Pair{1}},
                 {"dilation", Pair{2}},
                 {"groups", Integer{2}},
                 {"chunk", Integer{2}}}));
  add(conv_case("conv2d_point", {2, 5, 2, 3},
                {{"features", Integer{3}}, {"kernel", Pair{1}}, {"init_scale", 0.5}}));
  add(single("max_pool2d", "max_pool2d", {{"kernel", Pair{2}}}, {apart(real_field("x", image))}));
  add(single("max_pool2d_overlapping", "max_pool2d",
             {{"kernel", Pair{3, 2}}, {"stride", Pair{2, 1}}, {"padding", Pair{1, 1}}},
             {apart(real_field("x", image))}));
  add(single("average_pool2d", "average_pool2d", {}, {real_field("x", image)}));
  add(single("average_pool2d_overlapping", "average_pool2d",
             {{"kernel", Pair{3}}, {"stride", Pair{1}}, {"padding", Pair{1}}, {"count_padding", false}},
             {real_field("x", image)}));
  add(single("average_pool2d_global", "average_pool2d", {{"global", true}}, {real_field("x", image)}));
  add(single("batch_norm", "batch_norm", {}, {real_field("x", image)}));
  add(single("batch_norm_rows", "batch_norm", {{"eps", 0.5}}, {real_field("x", {5, 7})}));
  add(single("rms_norm", "rms_norm", {}, {real_field("x", {3, 5, 7})}));
  add(single("rms_norm_eps", "rms_norm", {{"eps", 0.5}}, {real_field("x", {5, 7})}));
  add(single("rms_norm_columns", "rms_norm", {{"columns", std::int64_t{3}}}, {real_field("x", {2, 5, 6})}));
  add(single("silu", "silu", {}, {real_field("x", {3, 5, 7})}));
  add(single("squared_relu", "squared_relu", {}, {off_zero(real_field("x", {3, 5, 7}))}));
  add(single("flatten_image", "flatten", {}, {real_field("x", image)}));
  add({"mse", {{"n", "mse", {"x", "t"}, {}}}, {}, {real_field("x", {3, 5}), real_field("t", {3, 5})}});
  add({"softmax_cross_entropy_smooth",
       {{"n", "softmax_cross_entropy", {"x", "targets"}, {{"label_smoothing", 0.2}}}},
       {},
       {real_field("x", {3, 5, 7}), masked_targets({3, 5}, 7)}});
  LayerCase head = head_case("head_smooth", {2, 4, 3}, 3, masked_targets({2, 4}, 11));
  head.nodes[0].options.push_back({"label_smoothing", 0.2});
  add(head);
  return cases;
}

}  // namespace tenon::testing
