// Bars for few parts, and one outline of sorted scores for many: a file of a wide model stays small.
#include "figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::minitron {
namespace {

constexpr double kPanelWidth = 330, kPanelHeight = 190, kLeft = 62, kTop = 30, kPlotWidth = 250,
                 kPlotHeight = 110, kHead = 62;
constexpr std::size_t kAcross = 3, kMostBars = 64, kPoints = 200;
constexpr const char *kStays = "#0072b2", *kGoes = "#d55e00";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '<')
      out += "&lt;";
    else if (letter == '&')
      out += "&amp;";
    else
      out += letter;
  }
  return out;
}

std::string text(double x, double y, const std::string& words, const char* anchor, double size) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y,
                     size, anchor, escaped(words));
}

/// The panel's scale: from the least score, or 0, to the greatest.
struct Scale {
  double low = 0, high = 0;
  explicit Scale(const std::vector<double>& scores) {
    for (const double score : scores) low = std::min(low, score), high = std::max(high, score);
    if (high == low) high = low + 1;
  }
  double y(double score) const { return kTop + kPlotHeight * (high - score) / (high - low); }
};

std::string bars(const Panel& panel, const Scale& scale, double left, double top) {
  std::string out;
  const double step = kPlotWidth / static_cast<double>(panel.scores.size());
  for (std::size_t i = 0; i < panel.scores.size(); ++i) {
    const double from = scale.y(std::max(0.0, panel.scores[i])), to = scale.y(std::min(0.0, panel.scores[i]));
    out += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n",
                       left + kLeft + step * (static_cast<double>(i) + 0.1), top + from, 0.8 * step,
                       std::max(0.5, to - from), panel.stays[i] ? kStays : kGoes);
  }
  const std::size_t every = (panel.scores.size() + 15) / 16;
  for (std::size_t i = 0; i < panel.scores.size(); i += every)
    out += text(left + kLeft + step * (static_cast<double>(i) + 0.5), top + kTop + kPlotHeight + 14,
                panel.labels.empty() ? std::to_string(i) : panel.labels[i], "middle", 9);
  return out;
}

/// Two areas under the falling scores: those that stay, and those that go.
std::string sorted(const Panel& panel, const Scale& scale, double left, double top) {
  std::vector<std::size_t> order(panel.scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return panel.scores[a] > panel.scores[b]; });
  std::string out;
  const double step = kPlotWidth / static_cast<double>(order.size());
  for (const bool stays : {true, false}) {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < order.size(); ++rank)
      if (panel.stays[order[rank]] == stays) ranks.push_back(rank);
    if (ranks.empty()) continue;
    std::string points;
    const std::size_t every = std::max<std::size_t>(1, ranks.size() / kPoints);
    const double zero = top + scale.y(0);
    points += fmt::format("{:.2f},{:.2f} ", left + kLeft + step * static_cast<double>(ranks.front()), zero);
    for (std::size_t i = 0; i < ranks.size(); i += every) {
      const double y = top + scale.y(panel.scores[order[ranks[i]]]);
      const std::size_t last = std::min(ranks.size() - 1, i + every - 1);
      points +=
          fmt::format("{:.2f},{:.2f} {:.2f},{:.2f} ", left + kLeft + step * static_cast<double>(ranks[i]), y,
                      left + kLeft + step * static_cast<double>(ranks[last] + 1), y);
    }
    points += fmt::format("{:.2f},{:.2f}", left + kLeft + step * static_cast<double>(ranks.back() + 1), zero);
    out += fmt::format("<polygon points=\"{}\" fill=\"{}\"/>\n", points, stays ? kStays : kGoes);
  }
  for (const double share : {0.0, 0.5, 1.0})
    out += text(left + kLeft + share * kPlotWidth, top + kTop + kPlotHeight + 14,
                fmt::format("{:.0f}", share * static_cast<double>(order.size())), "middle", 9);
  return out;
}

std::string axes(const Scale& scale, double left, double top, const std::string& unit) {
  std::string out;
  const double bottom = top + kTop + kPlotHeight;
  out += fmt::format(
      "<path d=\"M {0:.1f} {1:.1f} V {2:.1f} H {3:.1f}\" fill=\"none\" stroke=\"#444\" "
      "stroke-width=\"1\"/>\n",
      left + kLeft, top + kTop, bottom, left + kLeft + kPlotWidth);
  for (const double value : {scale.low, (scale.low + scale.high) / 2, scale.high})
    out += text(left + kLeft - 6, top + scale.y(value) + 3, fmt::format("{:.3g}", value), "end", 9);
  return out + text(left + kLeft + kPlotWidth / 2, bottom + 30, unit, "middle", 10);
}

/// Which of `count` parts stay; null: none does.
std::vector<bool> marks(std::size_t count, const Indices* kept) {
  std::vector<bool> stays(count);
  if (kept == nullptr) return stays;
  for (const std::int64_t index : *kept)
    if (index < static_cast<std::int64_t>(count)) stays[index] = true;
  return stays;
}

/// A panel per layer of one axis.
struct LayerAxis {
  const char *name, *title, *unit, *score;
  LayerKind kind;
  Indices KeptLayer::*kept;
};
constexpr LayerAxis kLayerAxes[] = {
    {"hidden", "Importance of FFN neurons", "neuron", "|activation|", LayerKind::kFfn, &KeptLayer::hidden},
    {"heads", "Importance of query heads", "head", "L2 norm of the head's output", LayerKind::kAttention,
     &KeptLayer::heads},
    {"mamba_heads", "Importance of Mamba heads", "head",
     "L2 norm of the head's x over the elements that stay", LayerKind::kMamba, &KeptLayer::mamba_heads},
    {"mamba_head_width", "Importance of elements of Mamba heads", "element", "L2 norm of x over the heads",
     LayerKind::kMamba, &KeptLayer::mamba_head_width},
};

std::vector<double> scores_of(const LayerAxis& axis, const Importance& importance, const LayerShape& layer,
                              const KeptLayer* kept) {
  const Importance::ByLayer& all = axis.kind == LayerKind::kFfn         ? importance.hidden
                                   : axis.kind == LayerKind::kAttention ? importance.heads
                                                                        : importance.mamba;
  const auto found = all.find(layer.number);
  if (found == all.end()) return {};
  if (axis.kept == &KeptLayer::mamba_head_width) return width_scores(found->second, layer.mamba_heads);
  if (axis.kept != &KeptLayer::mamba_heads) return found->second;
  Indices elements(static_cast<std::size_t>(layer.mamba_head_width));
  std::iota(elements.begin(), elements.end(), 0);
  return head_scores(found->second, layer.mamba_heads, kept == nullptr ? elements : kept->mamba_head_width);
}

Panel depth_panel(const Importance::Depth& depth, const DecoderShape& shape, const Plan& plan) {
  Panel panel;
  panel.scores = depth.scores;
  for (const std::int64_t number : depth.numbers) {
    const auto stays = [&](const PlannedLayer& layer) { return layer.from.number == number; };
    panel.stays.push_back(std::ranges::any_of(plan.layers, stays));
    panel.labels.push_back(fmt::format("{}{}", number, shape.layers[number].letter()));
  }
  return panel;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> figures(const Importance& importance,
                                                         const DecoderShape& shape, const Plan& plan,
                                                         const Kept& kept) {
  std::vector<std::pair<std::string, std::string>> drawings;
  if (!importance.width.empty())
    drawings.emplace_back(
        "width",
        figure("Importance of channels of the residual stream", "channel", "|norm(x)|, summed over all norms",
               {{"all layers", importance.width, marks(importance.width.size(), &kept.width), {}}}));
  for (const LayerAxis& axis : kLayerAxes) {
    std::vector<Panel> panels;
    for (const LayerShape& layer : shape.layers) {
      if (layer.kind != axis.kind || layer.skipped) continue;
      const KeptLayer* own = nullptr;
      for (std::size_t i = 0; i < plan.layers.size(); ++i)
        if (plan.layers[i].from.number == layer.number) own = &kept.layers[i];
      std::vector<double> scores = scores_of(axis, importance, layer, own);
      if (scores.empty()) continue;
      std::vector<bool> stays = marks(scores.size(), own == nullptr ? nullptr : &(own->*axis.kept));
      panels.push_back({fmt::format("layer {}{}", layer.number, own == nullptr ? ", which goes" : ""),
                        std::move(scores),
                        std::move(stays),
                        {}});
    }
    if (!panels.empty()) drawings.emplace_back(axis.name, figure(axis.title, axis.unit, axis.score, panels));
  }
  for (const auto& [method, depth] : importance.depth) {
    if (depth.scores.empty()) continue;
    const bool run = method == "contiguous";
    drawings.emplace_back(
        "depth_" + method,
        figure(fmt::format("Cost of {}, by {}", run ? fmt::format("a run of {} layers", depth.run) : "layers",
                           method),
               run ? "first layer of the run" : "layer",
               method == "bi"          ? "1 - cosine of the stream before and after"
               : method == "logit_mse" ? "squared difference of the logits without it"
                                       : "growth of the loss without it",
               {depth_panel(depth, shape, plan)}));
  }
  return drawings;
}

std::string figure(const std::string& title, const std::string& unit, const std::string& score,
                   const std::vector<Panel>& panels) {
  const std::size_t across = std::clamp<std::size_t>(panels.size(), 1, kAcross);
  const std::size_t down = (panels.size() + across - 1) / across;
  const double width = std::max(520.0, kPanelWidth * static_cast<double>(across)),
               height = kHead + kPanelHeight * static_cast<double>(down);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" font-family=\"sans-serif\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n",
      width, height);
  out += text(12, 22, title, "start", 14);
  out += text(12, 44, "height: " + score, "start", 11);
  double at = width - 150;
  for (const auto& [colour, word] : {std::pair{kStays, "stays"}, std::pair{kGoes, "goes"}}) {
    out += fmt::format("<rect x=\"{:.0f}\" y=\"35\" width=\"11\" height=\"11\" fill=\"{}\"/>\n", at, colour);
    out += text(at + 16, 44, word, "start", 11);
    at += 70;
  }
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const Panel& panel = panels[i];
    if (panel.scores.empty()) continue;
    const double left = kPanelWidth * static_cast<double>(i % across),
                 top = kHead + kPanelHeight * static_cast<double>(i / across);
    const Scale scale(panel.scores);
    const bool few = panel.scores.size() <= kMostBars;
    out += text(left + kLeft, top + 18, panel.title, "start", 11);
    out += few ? bars(panel, scale, left, top) : sorted(panel, scale, left, top);
    out += axes(scale, left, top, few ? unit : unit + "s, by falling score");
  }
  return out + "</svg>\n";
}

}  // namespace tenon::minitron
