// Transform `minitron`: a decoder cut to smaller extents, by the importance that its parts have on
// calibration data (arXiv 2407.14679, 2408.11796, 2504.11409). It measures, chooses, and copies what stays;
// it trains nothing.
#pragma once

#include "calibration.hpp"
#include "cut.hpp"
#include "kept.hpp"
#include "plan.hpp"
#include "search.hpp"

#include <tenon/host.hpp>
#include <tenon/options.hpp>
#include <tenon/plugin.hpp>
#include <tenon/transform.hpp>

#include <memory>
#include <optional>
#include <string>

namespace tenon::minitron {

enum class Rank : std::uint8_t { kImportance, kRandom };

class Minitron final : public Transform {
 public:
  static constexpr auto kRanks =
      option::choice<Rank>({{"importance", Rank::kImportance}, {"random", Rank::kRandom}});
  static constexpr auto kSums = option::choice<Sum>({{"mean", Sum::kMean}, {"l2", Sum::kL2}});
  static constexpr const char* kDepths[] = {"bi", "loss", "logit_mse", "contiguous", nullptr};
  static constexpr double kMost = 2147483647;
  static constexpr OptionSpec kOptions[] = {
      option::integer("width", nullptr)
          .between(1, kMost)
          .in_unit("channels")
          .doc_text("channels of the residual stream that stay; absent: all, as for the others"),
      option::integer("hidden", nullptr)
          .between(1, kMost)
          .in_unit("neurons")
          .doc_text("neurons that stay in every FFN"),
      option::integer("heads", nullptr)
          .between(1, kMost)
          .doc_text(
              "query heads that stay in every attention layer; absent: as many of each group as before"),
      option::integer("kv_heads", nullptr)
          .between(1, kMost)
          .doc_text("heads of keys and values that stay, each with its query heads; absent: as before, or "
                    "heads where every head has its own"),
      option::integer("mamba_heads", nullptr)
          .between(1, kMost)
          .doc_text("heads that stay in every Mamba layer, equally many of every group"),
      option::integer("mamba_head_width", nullptr)
          .between(1, kMost)
          .doc_text("elements that stay of a Mamba head, the same of all heads of a layer"),
      option::integers("layers", nullptr)
          .at_least(0)
          .doc_text("numbers of the layers that stay, counted from 0 over the repeated pattern"),
      option::integer("keep_layers", nullptr)
          .between(1, kMost)
          .in_unit("layers")
          .doc_text("how many layers stay; `depth` says which"),
      option::text("depth", "\"bi\"")
          .one_of(kDepths)
          .doc_text("cost of a layer: bi: 1 - cosine of the stream before and after it; loss: what the loss "
                    "grows by without it; logit_mse: the squared difference of the logits without it; "
                    "contiguous: the run of layers without which the loss is least"),
      option::boolean("iterative", "false")
          .doc_text("with depth = loss or logit_mse: one layer goes, and all others are measured again"),
      option::texts("aggregate", "[\"mean\", \"l2\"]")
          .one_of(kSums)
          .length(2)
          .doc_text(
              "sum over the positions of a sample, and over samples, of a part's activations: mean or l2"),
      option::text("rank", "\"importance\"")
          .one_of(kRanks)
          .doc_text("importance: what matters most stays; random: what stays is drawn, for comparison"),
      option::integer("seed", "1").at_least(0).doc_text("of rank = random"),
      option::boolean("merge_heads", "false")
          .doc_text("query heads that stay take the residual of heads of their group that go"),
      option::path("importance", nullptr)
          .made_later()
          .doc_text("importance.safetensors of an earlier cut of this model, in place of data"),
      option::tables<kSearchOptions>("search").doc_text(
          "lists of targets of which one shape within the bounds is taken, the one of least loss"),
      option::integer("take", "1")
          .between(1, kMost)
          .doc_text("of a search: 1 = the shape of least loss, 2 = the next"),
      option::component("data", Dataset::kKind)
          .doc_text("calibration data: text of the model's own tokenizer"),
      option::integer("samples", "1024")
          .between(1, kMost)
          .in_unit("samples")
          .doc_text("of the calibration data's training split, from its first on"),
      option::component("device", Device::kKind).doc_text("where the model runs; absent: the processor"),
      option::integer("threads", "0")
          .between(0, 4096)
          .in_unit("threads")
          .doc_text("of a device that is named here; 0 = the machine's cores"),
      option::component("precision", Precision::kKind)
          .doc_text("policy of the model's products; absent: the type of its weights"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "minitron",
      .summary = "a decoder cut in width, FFN, heads, Mamba heads and depth by importance on data",
      .options = kOptions};

  Minitron(const Options& options, Host& host);
  TransformedModel describe(std::span<StoredModel* const> sources) override;
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  /// What is known of a source before its importance is needed.
  struct Described {
    DecoderShape shape;
    Plan plan;
  };

  Described described(StoredModel& source);
  /// Layers that stay for these targets, and what the model then is.
  Plan planned(StoredModel& source, const DecoderShape& shape, const Targets& targets);
  /// Measures the shapes of [transform.search] within its bounds, once, and takes one of them.
  void search(StoredModel& source, const DecoderShape& shape);
  std::vector<Candidate> possible(StoredModel& source, const DecoderShape& shape, const Options& lists,
                                  std::int64_t context, std::size_t& enumerated);
  /// The importance of a source: read, drawn or measured, once.
  const Importance& importance(StoredModel& source, const DecoderShape& shape);
  const Importance::Depth& depth(StoredModel& source, const DecoderShape& shape);
  Importance measured(StoredModel& source, const DecoderShape& shape);
  Importance read(const DecoderShape& shape) const;
  Calibration& calibration();
  bool has_data() const { return options_.component<Dataset>("data") != nullptr; }
  bool is_random() const { return options_.choice("rank", kRanks) == Rank::kRandom; }
  void write_files(const DecoderShape& shape, const Plan& plan, const Kept& kept, const StoredModel& source,
                   TensorWriter& out) const;

  const Options& options_;  // outlives the transform
  Host& host_;
  Targets targets_;
  std::unique_ptr<Calibration> calibration_;
  std::string known_;  ///< digest of the model that found_ is of
  std::optional<Importance> found_;
  Targets given_;                     ///< without what a search took
  std::optional<Searched> searched_;  ///< of the model of that digest
  std::string searched_digest_;
};

}  // namespace tenon::minitron
