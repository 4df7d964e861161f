// Data set `mnist` (contract dataset/1): grey images with a class each, from pairs of IDX files. Fields:
// image f32 [1, height, width] and label i32 []. Keeps the bytes in memory and converts them to real numbers
// while copying.
#pragma once

#include "idx.hpp"

#include <tenon/plugin.hpp>
#include <tenon/sdk/indexed_dataset.hpp>

#include <array>
#include <optional>
#include <string>

namespace tenon::mnist {

class Mnist final : public IndexedDataset {
 public:
  enum class Scale : std::uint8_t { kUnit, kStandard, kRaw };
  static constexpr auto kScales =
      option::choice<Scale>({{"unit", Scale::kUnit}, {"standard", Scale::kStandard}, {"raw", Scale::kRaw}});
  static constexpr OptionSpec kOptions[] = {
      option::path("images", "\"data/mnist/t10k-images-idx3-ubyte.gz\"")
          .doc_text("IDX file of images, plain or gzip"),
      option::path("labels", "\"data/mnist/t10k-labels-idx1-ubyte.gz\"")
          .doc_text("IDX file of labels, plain or gzip"),
      option::path("val_images", nullptr)
          .doc_text("images to validate on, in place of a held-out share; with val_labels"),
      option::path("val_labels", nullptr).doc_text("labels of val_images"),
      batch_option("64"),
      order_option(),
      val_fraction_option("0.15"),
      split_option(),
      option::integer("classes", "10")
          .between(1, 256)
          .doc_text("number of classes; every label must be below it"),
      option::text("scale", "\"unit\"")
          .one_of(kScales)
          .doc_text("unit: byte / 255; standard: (byte / 255 - mean) / std; raw: 0 to 255"),
      option::real("mean", "0.1307")
          .between(0, 1)
          .doc_text("mean of the train images, for scale = \"standard\""),
      option::real("std", "0.3081")
          .between(1e-3, 1)
          .doc_text("standard deviation of the train images, for scale = \"standard\""),
      option::text("image_field", "\"image\"")
          .doc_text("name of the field of images, as the model asks for it"),
      option::text("label_field", "\"label\"").doc_text("name of the field of labels"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "mnist", .summary = "images and classes from IDX files", .options = kOptions};

  explicit Mnist(const Options& options);

 private:
  /// Images and labels of one pair of files.
  struct Set {
    IdxArray images, labels;
    std::int64_t size() const { return labels.extents[0]; }
  };

  IndexedContent load() override;
  void copy(bool from_val_files, std::int64_t index, std::int64_t row,
            std::span<const TensorView> fields) const override;
  Set read_set(const std::string& images, const std::string& labels) const;

  std::string images_path_, labels_path_, val_images_path_, val_labels_path_, image_field_, label_field_;
  std::int64_t classes_;
  std::array<float, 256> values_;  ///< scaled value of each byte
  Set main_;
  std::optional<Set> val_;
  std::int64_t pixels_ = 0;  ///< of an image
};

}  // namespace tenon::mnist
