// A data set of random fields x and y on a grid of points, in memory: only the step is timed.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/plugin.hpp>
#include <tenon/random.hpp>

#include <cstring>
#include <vector>

namespace tenon::bench {

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
    values_.resize(static_cast<std::size_t>(2 * batch_ * info_.fields[0].shape.elements()));
    const RandomKey key = random_key(seed_order, "bench.fields");
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = static_cast<float>(random_normal(key, 0, i));
  }
  std::int64_t batch() const override { return batch_; }
  const DataInfo& info() const override { return info_; }
  void read(const BatchRequest&, std::span<const TensorView> fields) override {
    const std::byte* from = reinterpret_cast<const std::byte*>(values_.data());
    for (const TensorView& field : fields) {
      std::memcpy(field.data, from, static_cast<std::size_t>(field.bytes()));
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

}  // namespace tenon::bench
