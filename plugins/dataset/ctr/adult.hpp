// Data set `adult` (contract dataset/1): UCI Adult, income above 50,000 or not, as click-through data.
// Fields: dense f32 [6], ids i32 [8] or more with buckets, labels i32 []. Means, deviations and buckets come
// come from the train rows, never from the validation rows.
#pragma once

#include "adult_file.hpp"

#include <tenon/plugin.hpp>
#include <tenon/sdk/indexed_dataset.hpp>

#include <string>
#include <vector>

namespace tenon::ctr {

class Adult final : public IndexedDataset {
 public:
  static constexpr const char* kEvaluations[] = {"held_out", "test", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::path("path", "\"data/adult/adult.data\"").doc_text("rows to train on, as UCI has them"),
      option::path("test_path", "\"data/adult/adult.test\"")
          .doc_text("rows for evaluate = \"test\"; not read otherwise"),
      option::text("evaluate", "\"held_out\"")
          .one_of(kEvaluations)
          .doc_text("held_out: hold out a share of path, for model selection; test: train on all of path and "
                    "validate on test_path, only for the final figure"),
      batch_option("128"),
      order_option(),
      option::real("val_fraction", "0.1")
          .between(0.001, 0.9)
          .doc_text("share that evaluate = \"held_out\" holds out: a fixed choice, the same for every seed"),
      option::integer("buckets", "0")
          .between(0, 4096)
          .doc_text("also turn each number into an id of its own table, by quantiles of the train rows with "
                    "at most this many buckets; 0 = no such tables"),
  };
  static constexpr ComponentInfo kInfo{.id = "adult",
                                       .summary = "UCI Adult: 6 numbers, 8 categories, income above 50,000",
                                       .options = kOptions};

  explicit Adult(const Options& options);

 private:
  /// Encoded samples, ready to be copied.
  struct Part {
    std::vector<float> dense;
    std::vector<std::int32_t> ids, labels;
  };

  IndexedContent load() override;
  void copy(bool from_val_files, std::int64_t index, std::int64_t row,
            std::span<const TensorView> fields) const override;
  void learn(std::span<const AdultRow> train);
  Part encode(std::span<const AdultRow> rows) const;

  std::string path_, test_path_;
  bool test_;
  double val_fraction_;
  std::int64_t buckets_;
  double mean_[kAdultNumbers] = {}, deviation_[kAdultNumbers] = {};
  std::vector<std::int32_t> bounds_[kAdultNumbers];  ///< first number of each bucket except the lowest
  std::size_t tables_ = kAdultCategories;
  Part train_, val_;
};

}  // namespace tenon::ctr
