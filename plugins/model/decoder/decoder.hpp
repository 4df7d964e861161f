// Model `decoder`: a language model as a pattern of layers, each x + f(norm(x)): `*` attention, `-` FFN,
// `M` Mamba-2. Llama, Phi-3, Mamba-2 and Nemotron-H are settings of it, and [[model.block]] changes single
// layers. Data fields: "tokens" and "targets", i32 [time]; "documents" and "positions", i32 [time], where the
// data has them. Parameter names are those of Hugging Face's Llama, except that a layer here is one letter of
// the pattern. decoder.cpp reads the pattern and writes the graph; names.cpp and
// hybrid_names.cpp have the names of other programs.
#pragma once

#include "distil.hpp"
#include "importer.hpp"
#include "pattern_layer.hpp"
#include "pattern_rules.hpp"

#include <tenon/model.hpp>
#include <tenon/sdk/outside_training.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::decoder {

enum class Rules : std::uint8_t { kFree, kNemotronH };
constexpr auto kRules = option::choice<Rules>({{"free", Rules::kFree}, {"nemotron_h", Rules::kNemotronH}});
enum class Objective : std::uint8_t { kTokens, kPolicy };
constexpr auto kObjectives =
    option::choice<Objective>({{"tokens", Objective::kTokens}, {"policy", Objective::kPolicy}});
constexpr auto kArchitectures = option::choice<Architecture>({{kLlamaName, Architecture::kLlama},
                                                              {kPhi3Name, Architecture::kPhi3},
                                                              {kNemotronHName, Architecture::kNemotronH},
                                                              {kMamba2Name, Architecture::kMamba2}});

class Decoder final : public Model, public LanguageModel, public ModelNames {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("pattern", nullptr)
          .mandatory()
          .doc_text("layers in their order: * attention, - FFN, M Mamba-2; \"*-\" repeated is Llama"),
      option::text("rules", "\"free\"")
          .one_of(kRules)
          .doc_text("what the pattern must obey; free: nothing; nemotron_h: the rules of Nemotron-H"),
      option::integer("repeat", "1").between(1, kMostLayers).doc_text("times that the pattern is repeated"),
      option::integer("width", nullptr)
          .mandatory()
          .between(1, kMost)
          .doc_text("width of the residual stream"),
      norm_option("\"rms\""),
      eps_option("1e-5"),
      option::text("position", "\"rope\"")
          .one_of(kPositions)
          .doc_text("rope: queries and keys are rotated; learned: a row per position is added to the "
                    "embedding; none"),
      rope_base_option("10000"),
      heads_option(),
      kv_heads_option(),
      head_width_option(),
      window_option("0"),
      qk_norm_option("false"),
      ffn_option("\"swiglu\""),
      hidden_option(),
      mamba_heads_option(),
      mamba_head_width_option("64"),
      mamba_state_option("128"),
      mamba_groups_option("1"),
      mamba_conv_option("4"),
      mamba_chunk_option("256"),
      mamba_dt_limits_option("[0, 0]"),
      bias_option("[]"),
      option::boolean("tied", "false").doc_text("the head's weight is the embedding's"),
      option::integer("vocabulary", nullptr).between(1, kMost).doc_text("tokens; absent: the data's"),
      option::integer("vocabulary_multiple", "1")
          .between(1, kMost)
          .doc_text("rows of embedding and head are rounded up to a multiple of this"),
      option::integer("context", nullptr)
          .between(1, kMost)
          .in_unit("tokens")
          .doc_text("longest sample, and rows of learned positions; absent: the data's"),
      option::real("init_scale", "0.02").at_least(0).doc_text("standard deviation of all initial matrices"),
      option::boolean("depth_scaled_init", "false")
          .doc_text("divide that of the maps that end a layer by the square root of the number of layers"),
      option::integer("chunk_rows", "0")
          .between(0, kMost)
          .in_unit("rows")
          .doc_text("rows of logits that the head holds at a time; 0: chosen by the head"),
      option::text("objective", "\"tokens\"")
          .one_of(kObjectives)
          .doc_text("tokens: cross-entropy of the targets; policy: the clipped objective of targets that the "
                    "model drew, for data with the fields drawn and advantages"),
      option::real("clip", "0.2").between(0, 1000).doc_text("of the layer policy_loss"),
      option::text("export_as", nullptr)
          .one_of(kArchitectures)
          .doc_text(
              "the model in other programs, for tenon export; absent: Mamba2ForCausalLM if all layers are M, "
              "NemotronHForCausalLM if some are, else Phi3ForCausalLM with a window, else LlamaForCausalLM"),
      option::tables<kBlockOptions>("block").doc_text(
          "options of single layers, over those of the model; a later table overrides an earlier one"),
      option::tables<kDistilOptions>("distil").doc_text(
          "a stored teacher that the model learns from, as [model.distil]; several: as [[model.distil]]"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "decoder",
      .summary =
          "language model as a pattern of attention, FFN and Mamba-2 layers: Llama, Nemotron-H and others",
      .options = kOptions};

  Decoder(const Options& options, Host& host);
  GraphSpec build(const DataInfo& data) override;
  LanguageGraph language_graph(const DataInfo& data) override;
  NamePlan name_plan(const DataInfo& data) override;
  void* query(std::string_view interface_id) override {
    if (interface_id == ModelNames::kId) return static_cast<ModelNames*>(this);
    return interface_id == LanguageModel::kId ? static_cast<LanguageModel*>(this) : nullptr;
  }

 private:
  class Writer;

  /// Appends everything before the head; returns the value that the head reads.
  std::string write_body(Writer& writer, const DataInfo& data) const;
  void distil(GraphSpec& graph, const std::string& last, std::vector<NamedOption> head,
              const DataInfo& data) const;
  Architecture architecture() const;
  void read_pattern();
  void apply_block(std::int64_t index, const Options& block);

  const Options& options_;  // outlives the model
  Host& host_;
  std::vector<PatternLayer> layers_;
};

/// Tokens of a sample. Throws Error(kConfig) for data that is not of a language model.
std::int64_t time_of(const DataInfo& data);
/// Rows of the embedding. Throws Error(kConfig) for a vocabulary that does not hold the data's.
std::int64_t vocabulary_rows(const Options& options, const DataInfo& data);

}  // namespace tenon::decoder
