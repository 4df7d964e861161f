// A data set of random images of three channels and random classes of ten, in memory: only the step is timed.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/plugin.hpp>
#include <tenon/random.hpp>

#include <cstring>
#include <vector>

namespace tenon::bench {

class RandomImages final : public Dataset {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("side", "32").at_least(1).in_unit("points"),
      option::integer("batch", "64").at_least(1).doc_text("samples per step")};
  static constexpr ComponentInfo kInfo{
      .id = "random_images", .summary = "normal random numbers as images", .options = kOptions};

  explicit RandomImages(const Options& options) : batch_(options.integer("batch")) {
    const std::int64_t side = options.integer("side");
    info_.fields = {{"image", DType::kF32, Shape{3, side, side}}, {"label", DType::kI32, Shape{}}};
    info_.attributes = {{"classes", kClasses}};
    info_.train_samples = batch_ * kBatches, info_.val_samples = batch_;
  }
  void open(std::uint64_t seed_order) override {
    images_.resize(static_cast<std::size_t>(batch_ * info_.fields[0].shape.elements()));
    labels_.resize(static_cast<std::size_t>(batch_));
    const RandomKey key = random_key(seed_order, "bench.images");
    for (std::size_t i = 0; i < images_.size(); ++i)
      images_[i] = static_cast<float>(random_normal(key, 0, i));
    for (std::size_t i = 0; i < labels_.size(); ++i) labels_[i] = static_cast<std::int32_t>(i * 7 % kClasses);
  }
  std::int64_t batch() const override { return batch_; }
  const DataInfo& info() const override { return info_; }
  void read(const BatchRequest&, std::span<const TensorView> fields) override {
    std::memcpy(fields[0].data, images_.data(), static_cast<std::size_t>(fields[0].bytes()));
    std::memcpy(fields[1].data, labels_.data(), static_cast<std::size_t>(fields[1].bytes()));
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static constexpr std::int64_t kBatches = 8, kClasses = 10;
  std::int64_t batch_;
  DataInfo info_;
  std::vector<float> images_;
  std::vector<std::int32_t> labels_;
};

}  // namespace tenon::bench
