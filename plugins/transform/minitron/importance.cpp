// Per hook: a = mean over positions of |.|, s = sum over samples of a^2, score = sqrt(s) (the public tool of
// Minitron); the other aggregates replace the mean, or the root of the sum.
#include "importance.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tenon::minitron {
namespace {

/// Cosine of two vectors; that of two zero vectors is 1: nothing changed.
double cosine(const double* a, const double* b, std::int64_t columns) {
  double dot = 0, of_a = 0, of_b = 0;
  for (std::int64_t i = 0; i < columns; ++i) {
    dot += a[i] * b[i];
    of_a += a[i] * a[i];
    of_b += b[i] * b[i];
  }
  if (of_a == 0 && of_b == 0) return 1;
  if (of_a == 0 || of_b == 0) return 0;
  return dot / (std::sqrt(of_a) * std::sqrt(of_b));
}

void require_finite(const std::vector<double>& scores, std::string_view what, std::string_view node,
                    const LayerShape* layer) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (std::isfinite(scores[i])) continue;
    fail_run(fmt::format(
        "transform minitron: the importance of {} {}{} is {}: the output of node '{}' is not finite on the "
        "calibration data; look for weights that are not finite in '{}*'",
        what, i, layer == nullptr ? "" : fmt::format(" of layer {}", layer->number), scores[i], node,
        layer == nullptr ? "model." : layer->prefix()));
  }
}

}  // namespace

std::string in_proj_node(const LayerShape& layer) {
  return layer.prefix() + "mamba.importance_of_in_proj";
}

Collector::Collector(const DecoderShape& shape, Sum over_sequence, Sum over_batch)
    : shape_(shape), over_sequence_(over_sequence), over_batch_(over_batch) {
  streams_.emplace("model.embed_tokens", nullptr);
  streams_.emplace("model.embed_positions", nullptr);
  hooks_["model.norm"].unit = Unit::kChannels;
  for (const LayerShape* layer : shape_.present()) {
    const std::string prefix = layer->prefix();
    streams_.emplace(prefix + "residual", layer);
    const auto hook = [&](const std::string& node, Unit unit) { hooks_[node] = Hook{unit, layer, {}}; };
    hook(prefix + "norm", Unit::kChannels);
    if (layer->kind == LayerKind::kAttention)
      hook(prefix + "self_attn", Unit::kHeads);
    else if (layer->kind == LayerKind::kFfn)
      hook(prefix + "mlp.act", Unit::kNeurons);
    else
      hook(in_proj_node(*layer), Unit::kMamba);
  }
}

/// The sizes of one position's units.
std::vector<double> Collector::magnitudes(const Hook& hook, const double* row, std::int64_t columns) const {
  std::vector<double> sizes;
  if (hook.unit == Unit::kHeads) {
    for (std::int64_t head = 0; head < hook.layer->heads; ++head) {
      double square = 0;
      for (std::int64_t i = 0; i < hook.layer->head_width; ++i, ++row) square += *row * *row;
      sizes.push_back(std::sqrt(square));
    }
    return sizes;
  }
  if (hook.unit == Unit::kMamba) {
    // Group after group: z, x, B, C, dt.
    const LayerShape& layer = *hook.layer;
    const std::int64_t part = layer.mamba_heads / layer.mamba_groups * layer.mamba_head_width;
    for (std::int64_t group = 0; group < layer.mamba_groups; ++group) {
      const double* x = row + group * layer.in_rows() + part;
      for (std::int64_t i = 0; i < part; ++i) sizes.push_back(std::abs(x[i]));
    }
    return sizes;
  }
  for (std::int64_t i = 0; i < columns; ++i) sizes.push_back(std::abs(row[i]));
  return sizes;
}

void Collector::add(Hook& hook, const TensorView& value, const std::vector<double>& values) const {
  const std::int64_t columns = value.shape[value.shape.rank() - 1];
  const std::int64_t time = value.elements() / value.shape[0] / columns;
  const double* row = values.data();
  for (std::int64_t sample = 0; sample < samples_; ++sample) {
    std::vector<double> of_sample;
    for (std::int64_t t = 0; t < time; ++t, row += columns) {
      const std::vector<double> sizes = magnitudes(hook, row, columns);
      of_sample.resize(sizes.size());
      for (std::size_t i = 0; i < sizes.size(); ++i)
        of_sample[i] += over_sequence_ == Sum::kMean ? sizes[i] : sizes[i] * sizes[i];
    }
    hook.sum.resize(of_sample.size());
    for (std::size_t i = 0; i < of_sample.size(); ++i) {
      const double size =
          over_sequence_ == Sum::kMean ? of_sample[i] / static_cast<double>(time) : std::sqrt(of_sample[i]);
      hook.sum[i] += over_batch_ == Sum::kMean ? size : size * size;
    }
  }
}

void Collector::compare_stream(const LayerShape* layer, const TensorView& value, std::vector<double> values) {
  const std::int64_t columns = value.shape[value.shape.rank() - 1];
  const std::int64_t rows = samples_ * (value.elements() / value.shape[0] / columns);
  if (layer != nullptr) {
    double& sum = cosines_[layer->number];
    for (std::int64_t row = 0; row < rows; ++row)
      sum += cosine(stream_.data() + row * columns, values.data() + row * columns, columns);
    if (layer == shape_.present().front()) positions_ += rows, seen_samples_ += samples_;
  }
  stream_ = std::move(values);
}

void Collector::see(std::string_view node, const TensorView& value) {
  if (value.shape.rank() != 3) return;
  std::vector<double> values;
  values.reserve(value.elements());
  for_each_real(value, [&](double element) { values.push_back(element); });
  if (const auto hook = hooks_.find(node); hook != hooks_.end()) add(hook->second, value, values);
  if (const auto stream = streams_.find(node); stream != streams_.end())
    compare_stream(stream->second, value, std::move(values));
}

double Collector::score(double sum) const {
  return over_batch_ == Sum::kL2 ? std::sqrt(sum) : sum / static_cast<double>(seen_samples_);
}

Importance Collector::scores() const {
  Importance found;
  for (const auto& [node, hook] : hooks_) {
    std::vector<double> scores;
    for (const double sum : hook.sum) scores.push_back(score(sum));
    switch (hook.unit) {
      case Unit::kChannels:
        require_finite(scores, "channel", node, hook.layer);
        found.width.resize(scores.size());
        for (std::size_t i = 0; i < scores.size(); ++i) found.width[i] += scores[i];
        break;
      case Unit::kNeurons:
        require_finite(scores, "neuron", node, hook.layer);
        found.hidden[hook.layer->number] = std::move(scores);
        break;
      case Unit::kHeads:
        require_finite(scores, "head", node, hook.layer);
        found.heads[hook.layer->number] = std::move(scores);
        break;
      case Unit::kMamba:
        require_finite(scores, "Mamba channel", node, hook.layer);
        found.mamba[hook.layer->number] = std::move(scores);
        break;
    }
  }
  Importance::Depth& depth = found.depth["bi"];
  for (const LayerShape* layer : shape_.present()) {
    const auto sum = cosines_.find(layer->number);
    if (sum == cosines_.end()) continue;
    depth.numbers.push_back(layer->number);
    depth.scores.push_back(1 - sum->second / static_cast<double>(positions_));
    require_finite({depth.scores.back()}, "block", layer->prefix() + "residual", layer);
  }
  return found;
}

}  // namespace tenon::minitron
