// A cut that leaves everything needs no scores. Where it leaves something, heads of keys and values go with
// their queries, and Mamba heads are ranked within their group, whose B and C they share.
#include "kept.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::minitron {
namespace {

Indices everything(std::int64_t count) {
  Indices all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// The scores of a layer; throws Error(kConfig) unless there are `count`.
const std::vector<double>& of_layer(const Importance::ByLayer& scores, const LayerShape& layer,
                                    const char* axis, std::int64_t count) {
  const auto found = scores.find(layer.number);
  const std::size_t there = found == scores.end() ? 0 : found->second.size();
  if (static_cast<std::int64_t>(there) != count)
    fail_config(fmt::format(
        "transform minitron: the importance has {} scores for {} of layer {}, and the model has {}; "
        "measure it on this model: give data in place of importance",
        there, axis, layer.number, count));
  return found->second;
}

/// The highest within each of `groups` equal parts.
Indices highest_of_groups(const std::vector<double>& scores, std::int64_t groups, std::int64_t count) {
  const std::int64_t part = static_cast<std::int64_t>(scores.size()) / groups;
  Indices kept;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::span<const double> own =
        std::span(scores).subspan(static_cast<std::size_t>(group * part), static_cast<std::size_t>(part));
    for (const std::int64_t index : highest(own, count / groups)) kept.push_back(group * part + index);
  }
  return kept;
}

/// Indices by falling score; of equal ones the first comes first.
Indices ranking(std::span<const double> scores) {
  Indices order = everything(static_cast<std::int64_t>(scores.size()));
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return scores[a] > scores[b]; });
  return order;
}

/// Where L ranked heads become K, the head of rank i takes the residual of rank 2K - i + 1, counted from 1.
void keep_heads_of_group(std::span<const double> scores, std::int64_t first, std::int64_t count,
                         KeptLayer& kept) {
  const Indices order = ranking(scores);
  for (const std::int64_t head : highest(scores, count)) {
    const std::int64_t rank = std::ranges::find(order, head) - order.begin() + 1;
    const std::int64_t partner = 2 * count - rank + 1;
    const bool takes = partner > count && partner <= static_cast<std::int64_t>(order.size());
    kept.heads.push_back(first + head);
    kept.merged.push_back(takes ? first + order[partner - 1] : -1);
  }
}

void keep_attention(const PlannedLayer& layer, const Importance& importance, KeptLayer& kept) {
  const LayerShape &from = layer.from, &to = layer.to;
  if (to.heads == from.heads) {
    kept.kv_heads = everything(from.kv_heads);
    kept.heads = everything(from.heads);
    kept.merged.assign(kept.heads.size(), -1);
    return;
  }
  const std::vector<double>& scores = of_layer(importance.heads, from, "heads", from.heads);
  kept.kv_heads = highest(group_scores(scores, from.kv_heads), to.kv_heads);
  const std::int64_t group = from.heads / from.kv_heads;
  if (group == 1) {
    keep_heads_of_group(scores, 0, to.heads, kept);
    return;
  }
  for (const std::int64_t kv : kept.kv_heads)
    keep_heads_of_group(
        std::span(scores).subspan(static_cast<std::size_t>(kv * group), static_cast<std::size_t>(group)),
        kv * group, to.heads / to.kv_heads, kept);
}

void keep_mamba(const PlannedLayer& layer, const Importance& importance, KeptLayer& kept) {
  const LayerShape &from = layer.from, &to = layer.to;
  kept.mamba_heads = everything(from.mamba_heads);
  kept.mamba_head_width = everything(from.mamba_head_width);
  if (to.mamba_heads == from.mamba_heads && to.mamba_head_width == from.mamba_head_width) return;
  const std::vector<double>& scores =
      of_layer(importance.mamba, from, "channels of Mamba heads", from.mamba_heads * from.mamba_head_width);
  kept.mamba_head_width = highest(width_scores(scores, from.mamba_heads), to.mamba_head_width);
  kept.mamba_heads = highest_of_groups(head_scores(scores, from.mamba_heads, kept.mamba_head_width),
                                       from.mamba_groups, to.mamba_heads);
}

}  // namespace

Indices highest(std::span<const double> scores, std::int64_t count) {
  Indices kept = ranking(scores);
  kept.resize(count);
  std::ranges::sort(kept);
  return kept;
}

std::vector<double> group_scores(std::span<const double> heads, std::int64_t kv_heads) {
  std::vector<double> groups(static_cast<std::size_t>(kv_heads));
  const std::size_t part = heads.size() / groups.size();
  for (std::size_t head = 0; head < heads.size(); ++head) groups[head / part] += heads[head];
  return groups;
}

std::vector<double> width_scores(std::span<const double> channels, std::int64_t heads) {
  std::vector<double> scores(channels.size() / static_cast<std::size_t>(heads));
  for (std::size_t i = 0; i < channels.size(); ++i) scores[i % scores.size()] += channels[i] * channels[i];
  for (double& score : scores) score = std::sqrt(score);
  return scores;
}

std::vector<double> head_scores(std::span<const double> channels, std::int64_t heads, const Indices& kept) {
  std::vector<double> scores(static_cast<std::size_t>(heads));
  const std::size_t width = channels.size() / scores.size();
  for (std::size_t head = 0; head < scores.size(); ++head) {
    for (const std::int64_t element : kept) {
      const double size = channels[head * width + static_cast<std::size_t>(element)];
      scores[head] += size * size;
    }
    scores[head] = std::sqrt(scores[head]);
  }
  return scores;
}

Kept choose(const DecoderShape& shape, const Plan& plan, const Importance& importance) {
  Kept kept;
  kept.width = everything(shape.width);
  if (plan.width < shape.width) {
    if (static_cast<std::int64_t>(importance.width.size()) != shape.width)
      fail_config(fmt::format(
          "transform minitron: the importance has {} scores for channels, and the model has width {}; "
          "measure it on this model: give data in place of importance",
          importance.width.size(), shape.width));
    kept.width = highest(importance.width, plan.width);
  }
  for (const PlannedLayer& layer : plan.layers) {
    KeptLayer& own = kept.layers.emplace_back();
    if (layer.from.skipped) continue;
    if (layer.from.kind == LayerKind::kAttention) {
      keep_attention(layer, importance, own);
    } else if (layer.from.kind == LayerKind::kMamba) {
      keep_mamba(layer, importance, own);
    } else {
      own.hidden = everything(layer.from.hidden);
      if (layer.to.hidden < layer.from.hidden)
        own.hidden =
            highest(of_layer(importance.hidden, layer.from, "neurons", layer.from.hidden), layer.to.hidden);
    }
  }
  return kept;
}

}  // namespace tenon::minitron
