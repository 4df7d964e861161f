// Data set `synthetic_ctr` (contract dataset/1): click-through samples of a planted model, each a function of
// (data seed, index) alone; no files. Fields: dense f32 [D], ids i32 [T], or [T, L] with bag = L and -1 in
// empty places, labels i32 [], planted f32 [], the true logit.
#pragma once

#include "planted.hpp"

#include <tenon/plugin.hpp>
#include <tenon/sdk/indexed_dataset.hpp>

#include <memory>

namespace tenon::ctr {

class SyntheticCtr final : public IndexedDataset {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("tables", "26").between(1, 4096).doc_text("number of tables"),
      option::integers("rows", "[1000]")
          .doc_text("rows of each table, or one number for all of them; 1 to 2147483647"),
      option::integer("dense", "13").between(1, 65536).doc_text("numbers per sample"),
      option::integer("bag", "1")
          .between(1, 4096)
          .doc_text("1: one id per table; L: a bag of 0 to L ids per table, each length as likely, padded "
                    "with -1"),
      option::integer("pairs", "4")
          .between(0, 2048)
          .doc_text(
              "pairs of tables whose rows act together: 0 and 1, 2 and 3, ...; at most half of the tables"),
      option::real("exponent", "1.5")
          .between(0, 8)
          .doc_text("exponent of the power law of accesses: the k-th most frequent row is drawn about as "
                    "k^-exponent"),
      option::integer("samples", "4000000").between(1, 1e15).doc_text("samples to train on, per epoch"),
      option::integer("val_samples", "100000").between(1, 1e15).doc_text("samples to validate on"),
      batch_option("2048"),
      order_option(),
      option::integer("data_seed", "1")
          .at_least(0)
          .doc_text("seed of the planted model and its samples; the run's seeds do not change the data"),
      option::real("bias", "-1").doc_text("bias of the planted logit; sets the share of clicks"),
      option::real("strength_dense", "0.5")
          .at_least(0)
          .doc_text("standard deviation of the contribution of the dense features to the logit"),
      option::real("strength_rows", "1.1")
          .at_least(0)
          .doc_text("standard deviation of the contribution that is linear in the rows, before the power law "
                    "lowers it"),
      option::real("strength_pairs", "0.8")
          .at_least(0)
          .doc_text(
              "standard deviation of the contribution of pairs of tables, which a linear model cannot fit"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "synthetic_ctr",
      .summary = "click-through samples of a planted model with known logits; no files",
      .options = kOptions};

  explicit SyntheticCtr(const Options& options);

 private:
  IndexedContent load() override;
  void copy(bool from_val_files, std::int64_t index, std::int64_t row,
            std::span<const TensorView> fields) const override;

  std::uint64_t seed_;
  PlantedModel model_;
  RandomKey train_key_, val_key_;
  std::int64_t samples_, val_samples_;
};

}  // namespace tenon::ctr
