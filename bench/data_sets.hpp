// Data sets in memory for benchmarks, of which only the step is timed.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/plugin.hpp>
#include <tenon/random.hpp>

#include <cstring>
#include <vector>

namespace tenon::bench {

/// A data set of random fields x and y on a grid of points, in memory: only the step is timed.
class RandomFields final : public Dataset {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integers("points", nullptr).mandatory().doc_text("of every dimension"),
      option::integer("batch", "16").at_least(1).doc_text("samples per step")};
  static constexpr ComponentInfo kInfo{
      .id = "random_fields", .summary = "normal random numbers on a grid", .options = kOptions};

  explicit RandomFields(const Options& options) : batch_(options.integer("batch")) {
    std::vector<std::int64_t> extents{1};
    for (const std::int64_t points : options.integers("points")) extents.push_back(points);
    const Shape shape{std::span<const std::int64_t>(extents)};
    info_.fields = {{"x", DType::kF32, shape}, {"y", DType::kF32, shape}};
    info_.train_samples = batch_ * kBatches, info_.val_samples = batch_;
  }
  void open(std::uint64_t seed_order) override {
    values_.resize(2 * batch_ * info_.fields[0].shape.elements());
    const RandomKey key = random_key(seed_order, "bench.fields");
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = static_cast<float>(random_normal(key, 0, i));
  }
  std::int64_t batch() const override { return batch_; }
  const DataInfo& info() const override { return info_; }
  void read(const BatchRequest&, std::span<const TensorView> fields) override {
    const std::byte* from = reinterpret_cast<const std::byte*>(values_.data());
    for (const TensorView& field : fields) {
      std::memcpy(field.data, from, field.bytes());
      from += field.bytes();
    }
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static constexpr std::int64_t kBatches = 8;
  std::int64_t batch_;
  DataInfo info_;
  std::vector<float> values_;
};

/// A data set of random images of three channels and random classes of ten, in memory: only the step is
/// timed.
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
    images_.resize(batch_ * info_.fields[0].shape.elements());
    labels_.resize(batch_);
    const RandomKey key = random_key(seed_order, "bench.images");
    for (std::size_t i = 0; i < images_.size(); ++i)
      images_[i] = static_cast<float>(random_normal(key, 0, i));
    for (std::size_t i = 0; i < labels_.size(); ++i) labels_[i] = static_cast<std::int32_t>(i * 7 % kClasses);
  }
  std::int64_t batch() const override { return batch_; }
  const DataInfo& info() const override { return info_; }
  void read(const BatchRequest&, std::span<const TensorView> fields) override {
    std::memcpy(fields[0].data, images_.data(), fields[0].bytes());
    std::memcpy(fields[1].data, labels_.data(), fields[1].bytes());
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static constexpr std::int64_t kBatches = 8, kClasses = 10;
  std::int64_t batch_;
  DataInfo info_;
  std::vector<float> images_;
  std::vector<std::int32_t> labels_;
};

/// A data set whose first batches are in memory, as a peer's are: only the step is timed. It reads them from
/// the data set inside it when it is opened, and repeats them.
class ReadyBatches final : public Dataset {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::component("inner", Dataset::kKind).mandatory(),
      option::integer("batches", "8").at_least(1).doc_text("how many lie ready")};
  static constexpr ComponentInfo kInfo{.id = "ready",
                                       .summary = "the first batches of another data set, again and again",
                                       .options = kOptions};

  explicit ReadyBatches(const Options& options)
      : inner_(*options.component<Dataset>("inner")), batches_(options.integer("batches")) {}
  void open(std::uint64_t seed_order) override {
    inner_.open(seed_order);
    for (std::int64_t b = 0; b < batches_; ++b) {
      std::vector<TensorView> views;
      for (const DataField& field : inner_.info().fields) {
        TensorView view;
        view.dtype = field.dtype;
        std::vector<std::int64_t> extents = {inner_.batch()};
        extents.insert(extents.end(), field.shape.extents().begin(), field.shape.extents().end());
        view.shape = Shape(extents);
        view.data = memory_.emplace_back(static_cast<std::size_t>(view.bytes())).data();
        views.push_back(view);
      }
      inner_.read({Split::kTrain, b * inner_.batch(), inner_.batch()}, views);
    }
  }
  std::int64_t batch() const override { return inner_.batch(); }
  const DataInfo& info() const override { return inner_.info(); }
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    if (request.split != Split::kTrain) return inner_.read(request, fields);
    const auto first = static_cast<std::size_t>(request.first / inner_.batch() % batches_) * fields.size();
    for (std::size_t i = 0; i < fields.size(); ++i)
      std::memcpy(fields[i].data, memory_[first + i].data(), memory_[first + i].size());
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  Dataset& inner_;
  std::int64_t batches_;
  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace tenon::bench
