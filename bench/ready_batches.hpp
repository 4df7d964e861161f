// A data set whose first batches are in memory, as a peer's are: only the step is timed. It reads them from
// the data set inside it when it is opened, and repeats them.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/plugin.hpp>

#include <cstring>
#include <vector>

namespace tenon::bench {

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
