// Model `gpt_neo` (Black et al. 2021; the configuration of EleutherAI/gpt-neo): pre-LayerNorm blocks,
// alternating global and local attention, logits of attention not divided by sqrt(d_head), learned positions,
// head tied to the embedding. Parameter names are those of Hugging Face transformers. Data fields: "tokens"
// and "targets", i32 [time].
#pragma once

#include "outside.hpp"

#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

#include <string>
#include <vector>

namespace tenon::gpt_neo {

class GptNeo final : public Model {
 public:
  enum class Activation : std::uint8_t { kGeluTanh, kGeluExact };
  static constexpr auto kActivations = option::choice<Activation>(
      {{"gelu_tanh", Activation::kGeluTanh}, {"gelu_exact", Activation::kGeluExact}});
  static constexpr const char* kAttentions[] = {"global", "local", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("layers", nullptr).mandatory().between(1, 10000).doc_text("transformer blocks"),
      option::integer("width", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("width of the residual stream"),
      option::integer("heads", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("attention heads; width is a multiple"),
      option::integer("context", nullptr)
          .between(1, 2147483647)
          .in_unit("tokens")
          .doc_text("positions with a learned row; absent: the data's"),
      option::integer("vocabulary", nullptr)
          .between(1, 2147483647)
          .doc_text("rows of the embedding; absent: the data's"),
      option::texts("attention", "[\"global\", \"local\"]")
          .one_of(kAttentions)
          .doc_text("kind of attention per layer, repeated to the number of layers"),
      option::integer("window", "256")
          .between(1, 2147483647)
          .in_unit("tokens")
          .doc_text("keys that local attention sees"),
      option::real("mlp_ratio", "4")
          .between(0.001, 10000)
          .doc_text("width of the MLP over the width of the model"),
      option::text("activation", "\"gelu_tanh\"").one_of(kActivations).doc_text("of the MLP"),
      option::boolean("scale_logits", "false")
          .doc_text("divide attention logits by sqrt(d_head); GPT-Neo does not"),
      option::real("dropout", "0")
          .between(0, 0.999)
          .doc_text("probability after the embeddings and on both branches of a block; attention weights "
                    "keep theirs"),
      option::real("eps", "1e-5").at_least(0).doc_text("added to the variance by layer norms"),
      option::real("init_scale", "0.02").at_least(0).doc_text("standard deviation of all initial matrices"),
      option::integer("chunk_rows", "0")
          .between(0, 2147483647)
          .in_unit("rows")
          .doc_text("rows of logits that the head holds at a time; 0: chosen by the head"),
  };
  static constexpr ComponentInfo kInfo{.id = "gpt_neo",
                                       .summary = "GPT-Neo language model",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit GptNeo(const Options& options);
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return outside_.query(interface_id); }

 private:
  const Options& options_;  // outlives the model
  Outside outside_;
};

}  // namespace tenon::gpt_neo
