// For tests of minitron: decoders in memory with recorded or drawn weights, and data of recorded tokens.
// Header only.
#pragma once

#include "calibration.hpp"
#include "cut.hpp"
#include "kept.hpp"
#include "pruned_model.hpp"

#include "reference/recorded.hpp"

#include <tenon/random.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>
#include <tenon/testing/stored_models.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tenon::minitron::testing_decoders {

using testing::Bench;
using testing::MemoryModel;
using testing::Recorded;

inline constexpr std::int64_t kVocabulary = 23, kTime = 10, kSamples = 6, kBatch = 4;

/// The models of tests/reference/minitron.py, and the extents that they are cut to.
struct Twin {
  const char *name, *table;
  Targets targets;
};
inline const std::vector<Twin>& twins() {
  static const std::vector<Twin> list{
      {"hybrid",
       "pattern = 'M-*-M*-'\nwidth = 12\nheads = 4\nkv_heads = 2\nhead_width = 4\nhidden = 10\nffn = "
       "'squared_relu'\nposition = 'none'\nmamba_heads = 4\nmamba_head_width = 4\nmamba_state = 3\n"
       "mamba_groups = 2\nmamba_conv = 3\nmamba_chunk = 4\n",
       {.width = 8, .hidden = 6, .heads = 2, .kv_heads = 1, .mamba_heads = 2, .mamba_head_width = 3}},
      {"llama",
       "pattern = '*-'\nrepeat = 3\nwidth = 12\nheads = 6\nkv_heads = 3\nhead_width = 4\nhidden = 14\n"
       "norm = 'layer'\nbias = ['qkv', 'out', 'ffn']\nqk_norm = true\ntied = true\n",
       {.width = 10, .hidden = 9, .heads = 2, .kv_heads = 2}},
      {"plain",
       "pattern = '*-*-'\nwidth = 8\nheads = 4\nhidden = 9\nffn = 'gelu'\n",
       {.width = 6, .hidden = 4, .heads = 3}},
  };
  return list;
}
inline const Twin& twin(std::string_view name) {
  return *std::ranges::find(twins(), name, [](const Twin& one) { return std::string_view(one.name); });
}

inline DataInfo token_info(std::int64_t vocabulary = kVocabulary) {
  DataInfo data;
  data.fields = {{"tokens", DType::kI32, {kTime}}, {"targets", DType::kI32, {kTime}}};
  data.attributes = {{"vocabulary", vocabulary}};
  data.train_samples = kSamples;
  return data;
}

/// The recorded tokens, in batches of which the last is padded with tokens that no score may count.
class TokenData final : public Dataset {
 public:
  explicit TokenData(std::int64_t vocabulary = kVocabulary)
      : info_(token_info(vocabulary)), recorded_("minitron") {}
  void open(std::uint64_t) override {
    tokens_ = recorded_.values("tokens");
    targets_ = recorded_.values("targets");
  }
  std::int64_t batch() const override { return kBatch; }
  const DataInfo& info() const override { return info_; }
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    for (std::int64_t i = 0; i < kBatch * kTime; ++i) {
      const bool counts = i < request.count * kTime;
      const auto at = static_cast<std::size_t>(request.first * kTime + i);
      fields[0].as<std::int32_t>()[i] = counts ? static_cast<std::int32_t>(tokens_[at]) : 0;
      fields[1].as<std::int32_t>()[i] = counts ? static_cast<std::int32_t>(targets_[at]) : -1;
    }
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  DataInfo info_;
  Recorded recorded_;
  std::vector<double> tokens_, targets_;
};

/// Weights by name, in f64.
using Weights = std::map<std::string, std::pair<Shape, std::vector<double>>>;

/// A bench with the decoder on the processor.
class Decoders {
 public:
  Decoders() { bench.host.device = &*bench.device; }

  GraphSpec graph(const std::string& table) {
    return bench.make_component<Model>("decoder", table)->build(token_info());
  }
  Weights recorded_weights(const Twin& of) const {
    Weights weights;
    const std::string prefix = fmt::format("{}.init.", of.name);
    for (const std::string& name : recorded.names())
      if (name.starts_with(prefix))
        weights[name.substr(prefix.size())] = {recorded.shape(name), recorded.values(name)};
    return weights;
  }
  std::unique_ptr<MemoryModel> model(const std::string& table, const Weights& weights) {
    auto made = std::make_unique<MemoryModel>("type = 'decoder'\n" + table, "runs/model");
    for (const auto& [name, tensor] : weights) made->add(name, DType::kF64, tensor.first, tensor.second);
    made->describe().attributes = {{"vocabulary", kVocabulary}};
    made->set_graph(graph(table));
    made->set_digest("digest");
    return made;
  }
  std::unique_ptr<MemoryModel> recorded_model(const Twin& of) {
    return model(of.table, recorded_weights(of));
  }

  Bench bench{"cpu", "reference", 1};
  Recorded recorded{"minitron"};
};

/// Logits over all samples.
inline std::vector<double> logits_of(Calibration& calibration, StoredModel& source) {
  const DecoderShape shape;
  Pass pass(calibration, calibration_graph(source, calibration.data(), shape, "logits"), source, {"logits"});
  std::vector<double> logits;
  for (std::int64_t batch = 0; batch < calibration.batches(); ++batch) {
    pass.forward(batch, nullptr);
    const std::vector<double> part = pass.value("logits");
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

inline Importance scores_of(Calibration& calibration, StoredModel& source, Sum sequence = Sum::kMean,
                            Sum batch = Sum::kL2) {
  const DecoderShape shape = read_shape(source);
  Pass pass(calibration, calibration_graph(source, calibration.data(), shape, ""), source, {});
  Collector collector(shape, sequence, batch);
  for (std::int64_t i = 0; i < calibration.batches(); ++i) pass.forward(i, &collector);
  return collector.scores();
}

/// A cut by importance.
inline std::unique_ptr<PrunedModel> cut_model(StoredModel& source, const Targets& targets,
                                              const Importance& importance, bool merge = false) {
  const DecoderShape shape = read_shape(source);
  require_possible(targets, shape, source.folder());
  const Indices* const kept = targets.layers ? &*targets.layers : nullptr;
  const Plan plan = make_plan(shape, targets, kept);
  return std::make_unique<PrunedModel>(source, shape, plan, targets, choose(shape, plan, importance), merge);
}

/// Elements of a tensor of a stored model of f64.
inline std::vector<double> values_of(StoredModel& source, const StoredTensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.shape.elements()));
  Shape origin = tensor.shape;
  for (int dim = 0; dim < origin.rank(); ++dim) origin[dim] = 0;
  source.read(tensor.name, origin, {values.data(), tensor.shape, DType::kF64, MemorySpace::kHost});
  return values;
}

/// Largest difference, relative to the largest element of the second.
inline double error_of(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return HUGE_VAL;
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(found[i] - expected[i]);
    error = difference <= error ? error : difference;  // NaN stays
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error / (largest > 0 ? largest : 1);
}

}  // namespace tenon::minitron::testing_decoders
