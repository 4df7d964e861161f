// Scaling matches torchvision digit by digit: ToTensor divides by 255 in f32, Normalize subtracts and divides
// in f32.
#include "mnist.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

namespace tenon::mnist {
namespace {

std::array<float, 256> scaled_bytes(const Options& options) {
  std::array<float, 256> values{};
  const Mnist::Scale scale = options.choice("scale", Mnist::kScales);
  const auto mean = static_cast<float>(options.real("mean")), std = static_cast<float>(options.real("std"));
  for (int byte = 0; byte < 256; ++byte) {
    const auto raw = static_cast<float>(byte);
    const float unit = raw / 255.0f;
    float& value = values[byte];
    switch (scale) {
      case Mnist::Scale::kRaw:
        value = raw;
        break;
      case Mnist::Scale::kUnit:
        value = unit;
        break;
      case Mnist::Scale::kStandard:
        value = (unit - mean) / std;
        break;
    }
  }
  return values;
}

std::string text_or_nothing(const Options& options, std::string_view name) {
  return options.has(name) ? std::string(options.text(name)) : std::string();
}

}  // namespace

Mnist::Mnist(const Options& options)
    : IndexedDataset("data.mnist", options),
      images_path_(options.text("images")),
      labels_path_(options.text("labels")),
      val_images_path_(text_or_nothing(options, "val_images")),
      val_labels_path_(text_or_nothing(options, "val_labels")),
      image_field_(options.text("image_field")),
      label_field_(options.text("label_field")),
      classes_(options.integer("classes")),
      values_(scaled_bytes(options)) {
  if (val_images_path_.empty() != val_labels_path_.empty()) {
    fail_config(fmt::format("data.mnist: {} is set without {}; validation files come in pairs",
                            val_images_path_.empty() ? "val_labels" : "val_images",
                            val_images_path_.empty() ? "val_images" : "val_labels"));
  }
  if (image_field_.empty() || label_field_.empty() || image_field_ == label_field_) {
    fail_config(
        fmt::format("data.mnist: image_field = \"{}\" and label_field = \"{}\": expected two different names",
                    image_field_, label_field_));
  }
}

Mnist::Set Mnist::read_set(const std::string& images, const std::string& labels) const {
  Set set{read_idx(images, 3, "images"), read_idx(labels, 1, "labels")};
  if (set.images.extents[0] != set.size()) {
    fail_config(
        fmt::format("data files '{}' and '{}': expected one label per image, found {} images and {} labels",
                    images, labels, set.images.extents[0], set.size()));
  }
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const int label = set.labels.bytes[i];
    if (label >= classes_) {
      fail_config(
          fmt::format("data file '{}': label {} at position {} lies outside of the {} classes; set classes "
                      "to their number",
                      labels, label, i, classes_));
    }
  }
  return set;
}

IndexedContent Mnist::load() {
  main_ = read_set(images_path_, labels_path_);
  const std::vector<std::int64_t>& extents = main_.images.extents;
  pixels_ = extents[1] * extents[2];
  IndexedContent content;
  content.samples = main_.size();
  std::vector<std::string> paths{images_path_, labels_path_};
  if (!val_images_path_.empty()) {
    val_ = read_set(val_images_path_, val_labels_path_);
    const std::vector<std::int64_t>& found = val_->images.extents;
    if (found[1] != extents[1] || found[2] != extents[2]) {
      fail_config(
          fmt::format("data files '{}' and '{}': expected images of one size, found {} x {} and {} x {}",
                      images_path_, val_images_path_, extents[1], extents[2], found[1], found[2]));
    }
    content.val_samples = val_->size();
    paths.insert(paths.end(), {val_images_path_, val_labels_path_});
  }
  const std::unique_ptr<FileSystem> files = make_posix_files();
  for (const std::string& path : paths) content.sources.push_back({path, sha256_of_file(*files, path)});
  content.fields = {{image_field_, DType::kF32, Shape{1, extents[1], extents[2]}},
                    {label_field_, DType::kI32, Shape{}}};
  content.is_target = {false, true};
  content.attributes = {{"classes", classes_}};
  return content;
}

void Mnist::copy(bool from_val_files, std::int64_t index, std::int64_t row,
                 std::span<const TensorView> fields) const {
  const Set& set = from_val_files ? *val_ : main_;
  const std::uint8_t* bytes = set.images.bytes.data() + index * pixels_;
  float* out = fields[0].as<float>() + row * pixels_;
  for (std::int64_t i = 0; i < pixels_; ++i) out[i] = values_[bytes[i]];
  fields[1].as<std::int32_t>()[row] = set.labels.bytes[index];
}

}  // namespace tenon::mnist

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.mnist",
                               .version = "0.1.0",
                               .summary = "MNIST and other images in IDX files as data"},
             tenon::mnist::Mnist)
