// Small graphs of every layer of this plugin, with odd sizes, for tests that hold for all layers alike.
#pragma once

#include "image_cases.hpp"

namespace tenon::testing {

inline std::vector<LayerCase> layer_cases() {
  using Integer = std::int64_t;
  const Shape flat{5, 7}, deep{3, 5, 7};
  std::vector<LayerCase> cases;
  const auto add = [&](LayerCase c) { cases.push_back(std::move(c)); };
  add(single("linear", "linear", {{"features", Integer{4}}}, {real_field("x", deep)}));
  add(single("linear_no_bias", "linear", {{"features", Integer{9}}, {"bias", false}},
             {real_field("x", flat)}));
  add(single("linear_to_one", "linear", {{"features", Integer{1}}, {"init_scale", 0.5}},
             {real_field("x", flat)}));
  add(single("embedding", "embedding", {{"rows", Integer{6}}, {"width", Integer{3}}},
             {id_field("ids", {2, 9}, 6)}));
  add(single("positions", "positions", {{"context", Integer{5}}}, {real_field("x", deep)}));
  add(single("positions_given", "positions", {{"context", Integer{4}}},
             {real_field("x", deep), id_field("positions", {3, 5}, 4)}));
  add(single("positions_longer", "positions", {{"context", Integer{8}}}, {real_field("x", deep)}));
  add(single("layer_norm", "layer_norm", {}, {real_field("x", deep)}));
  add(single("layer_norm_eps", "layer_norm", {{"eps", 0.5}}, {real_field("x", flat)}));
  add(single("gelu", "gelu", {}, {real_field("x", deep)}));
  add(single("gelu_exact", "gelu", {{"approximate", std::string("none")}}, {real_field("x", deep)}));
  add(single("relu", "relu", {}, {off_zero(real_field("x", deep))}));
  add(single("dropout", "dropout", {{"p", 0.4}}, {real_field("x", deep)}));
  add(single("dropout_off", "dropout", {{"p", 0.0}}, {real_field("x", deep)}));
  add(single("flatten", "flatten", {}, {real_field("x", deep)}));
  add(single("residual", "residual", {}, {real_field("a", deep), real_field("b", deep)}));
  add({"residual_twice", {{"n", "residual", {"x", "x"}, {}}}, {"n"}, {real_field("x", deep)}});
  add(attention_case("attention", 5, 2, 6, 0, false));
  add(attention_case("attention_scaled", 5, 3, 6, 0, true));
  add(attention_case("attention_window1", 5, 2, 6, 1, false));
  add(attention_case("attention_window2", 7, 1, 3, 2, true));
  add(attention_case("attention_wide_window", 5, 2, 6, 9, false));
  add(attention_case("attention_one_token", 1, 2, 6, 3, false));
  add(grouped_attention_case("attention_grouped", 5, 4, 2, 3, 0, {}));
  add(grouped_attention_case("attention_one_key_head", 5, 3, 1, 2, 2, {}));
  add(grouped_attention_case("attention_documents", 7, 2, 2, 3, 0, {3, 1, 3}));
  add(grouped_attention_case("attention_documents_window", 7, 4, 2, 3, 2, {5, 2}));
  add(grouped_attention_case("attention_tokens_alone", 4, 2, 1, 3, 0, {1, 1, 1, 1}));
  add({"attention_self",
       {{"n", "attention", {"x", "x", "x"}, {{"heads", Integer{2}}}}},
       {"n"},
       {real_field("x", {2, 5, 6})}});
  const TestField wide = real_field("x", {2, 5, 12});
  add(single("rotary", "rotary", {{"heads", Integer{2}}}, {wide}));
  add(single("rotary_one_pair", "rotary", {{"heads", Integer{6}}, {"base", 100.0}}, {wide}));
  add(single("rotary_positions", "rotary", {{"heads", Integer{3}}, {"base", 500.0}},
             {wide, id_field("positions", {2, 5}, 40)}));
  add(single("gate", "gate", {}, {real_field("a", deep), real_field("b", deep)}));
  for (const char* map : {"gelu", "none"}) {
    add(single(std::string("gate_") + map, "gate", {{"map", std::string(map)}},
               {real_field("a", deep), real_field("b", deep)}));
    add({std::string("gate_itself_") + map,
         {{"n", "gate", {"x", "x"}, {{"map", std::string(map)}}}},
         {"n"},
         {real_field("x", deep)}});
  }
  add({"softmax_cross_entropy",
       {{"n", "softmax_cross_entropy", {"x", "targets"}, {}}},
       {},
       {real_field("x", deep), masked_targets({3, 5}, 7)}});
  add({"softmax_cross_entropy_classes",
       {{"n", "softmax_cross_entropy", {"x", "targets"}, {}}},
       {},
       {real_field("x", flat), id_field("targets", {5}, 7)}});
  add(head_case("head_whole", {2, 4, 3}, 0, masked_targets({2, 4}, 11)));
  add(head_case("head_chunks", {2, 4, 3}, 3, masked_targets({2, 4}, 11)));  // 8 rows as 3 + 3 + 2
  add(head_case("head_rows", {7, 3}, 1, id_field("targets", {7}, 11)));
  add(log_probs_case("log_probs_whole", {2, 4, 3}, 0, masked_targets({2, 4}, 11)));
  add(log_probs_case("log_probs_chunks", {2, 4, 3}, 3, masked_targets({2, 4}, 11)));
  add(log_probs_loss_case("log_probs_loss", {2, 4, 3}, 3, masked_targets({2, 4}, 11)));
  const TestField values = real_field("values", {3, 5}), weights = real_field("weights", {3, 5});
  add({"weighted_sum", {{"n", "weighted_sum", {"values"}, {}}}, {}, {values}});
  add({"weighted_sum_masked",
       {{"n", "weighted_sum", {"values", "weights", "targets"}, {{"scale", -1.5}}}},
       {},
       {values, weights, masked_targets({3, 5}, 7)}});
  add(policy_case("policy_loss", {3, 5}, 0.2));
  add(policy_case("policy_loss_no_room", {11}, 0));
  add(two_losses_case("add_losses", {{"weights", std::vector<double>{0.7, 1.9}}}));
  LayerCase sums = two_losses_case("add_losses_twice", {{"metric", std::string("inner")}});
  sums.nodes.push_back({"outer", "add_losses", {"n", "ce", "n"}, {}});
  add(sums);
  LayerCase tied{
      "tied",
      {{"wte", "embedding", {"tokens"}, {{"rows", Integer{11}}, {"width", Integer{4}}, {"init_scale", 0.7}}},
       {"head",
        "head_cross_entropy",
        {"wte", "targets"},
        {{"vocabulary", Integer{11}}, {"weight", std::string("wte.weight")}, {"init_scale", 0.7}}}},
      {},
      {id_field("tokens", {2, 5}, 11), masked_targets({2, 5}, 11)}};
  add(tied);
  for (LayerCase& c : image_cases()) add(std::move(c));
  return cases;
}

/// The same graph with a node before each real input and several after each pulled value, so that no value of
/// the layer is a data field, which memory planning does not reuse.
inline LayerCase surrounded(LayerCase c) {
  std::vector<NodeSpec> before, after;
  for (const TestField& field : c.fields) {
    if (!dtype_is_real(field.dtype)) continue;
    before.push_back({"pre_" + field.name, "residual", {field.name, field.name}, {}});
    for (NodeSpec& node : c.nodes) {
      for (std::string& input : node.inputs) {
        if (input == field.name) input = "pre_" + field.name;
      }
    }
  }
  for (std::string& pulled : c.pulled) {
    // Sums keep nothing, so their results reuse the memory that the layer released; the last map keeps its
    // input.
    std::string last = pulled;
    for (int i = 0; i < 6; ++i) {
      after.push_back({"sum" + std::to_string(i) + "_" + pulled, i < 5 ? "residual" : "gelu", {last}, {}});
      if (i < 5) after.back().inputs.push_back(last);
      last = after.back().name;
    }
    pulled = last;
  }
  c.nodes.insert(c.nodes.begin(), before.begin(), before.end());
  c.nodes.insert(c.nodes.end(), after.begin(), after.end());
  return c;
}

inline LayerHarness harness_of(Bench& bench, Precision& precision, const LayerCase& c) {
  return LayerHarness(
      {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &precision},
      c.nodes, c.pulled, c.fields);
}

}  // namespace tenon::testing
