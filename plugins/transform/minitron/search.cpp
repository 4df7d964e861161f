// The sizes are those of the graph that the cut gives, so that nothing is counted that it does not have.
#include "search.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace tenon::minitron {
namespace {

constexpr std::size_t kMostCandidates = 4096;

struct SearchedAxis {
  const char* name;
  std::optional<std::int64_t> Targets::*target;
};
constexpr std::array kSearched{
    SearchedAxis{"width", &Targets::width},
    SearchedAxis{"hidden", &Targets::hidden},
    SearchedAxis{"heads", &Targets::heads},
    SearchedAxis{"kv_heads", &Targets::kv_heads},
    SearchedAxis{"mamba_heads", &Targets::mamba_heads},
    SearchedAxis{"mamba_head_width", &Targets::mamba_head_width},
    SearchedAxis{"keep_layers", &Targets::keep_layers},
};

double apart(std::int64_t found, std::int64_t wanted) {
  return static_cast<double>(found) / static_cast<double>(wanted) - 1;
}

std::string bytes_text(std::int64_t bytes) {
  return fmt::format("{} bytes", bytes);
}

std::string size_text(const ModelSize& size) {
  return fmt::format("{} parameters, {} (weights {}, keys and values {}, states {})", size.parameters,
                     bytes_text(size.memory()), size.weight_bytes, size.cache_bytes, size.state_bytes);
}

std::string bounds_text(const Bounds& bounds) {
  std::vector<std::string> parts;
  const auto about = [&](const char* what, std::int64_t wanted) {
    parts.push_back(fmt::format("{} {} within {:g} %", wanted, what, 100 * bounds.tolerance));
  };
  if (bounds.parameters) about("parameters", *bounds.parameters);
  if (bounds.memory) about("bytes", *bounds.memory);
  if (bounds.memory_limit) parts.push_back(fmt::format("at most {} bytes", *bounds.memory_limit));
  return fmt::format("{} at a context of {}", fmt::join(parts, ", "), bounds.context);
}

/// Features of the map NODE_OF_ATTENTION.k_proj.
std::int64_t key_features(const GraphSpec& graph, const NodeSpec& attention) {
  const NodeSpec* keys = find_node(graph, attention.name + ".k_proj");
  return keys == nullptr ? 0 : integer_option(*keys, "features", 0);
}

}  // namespace

std::vector<Targets> combinations(const Options& search, const Targets& base) {
  std::vector<Targets> out{base};
  bool any = false;
  for (const SearchedAxis& axis : kSearched) {
    const auto values = search.integers(axis.name);
    if (values.empty()) continue;
    any = true;
    if (base.*axis.target)
      fail_config(
          fmt::format("transform minitron: {} is a target and a list of [transform.search]; expected "
                      "one of them",
                      axis.name));
    std::vector<Targets> longer;
    for (const Targets& shorter : out) {
      for (const std::int64_t value : values) {
        if (value < 1)
          fail_config(fmt::format("transform minitron: {} = {} in [transform.search]; expected at least 1",
                                  axis.name, value));
        longer.push_back(shorter);
        longer.back().*axis.target = value;
      }
    }
    if (longer.size() > kMostCandidates)
      fail_config(
          fmt::format("transform minitron: the lists of [transform.search] make more than {} shapes; "
                      "leave out values",
                      kMostCandidates));
    out = std::move(longer);
  }
  if (!any)
    fail_config(
        "transform minitron: [transform.search] has no list to choose from; give width, hidden, heads, "
        "kv_heads, mamba_heads, mamba_head_width or keep_layers");
  return out;
}

void require_used(const Options& search, const std::vector<Candidate>& candidates,
                  const std::string& problem) {
  for (const SearchedAxis& axis : kSearched) {
    for (const std::int64_t value : search.integers(axis.name)) {
      if (std::ranges::any_of(candidates,
                              [&](const Candidate& one) { return one.targets.*axis.target == value; }))
        continue;
      fail_config(fmt::format("transform minitron: no shape of [transform.search] can have {} = {}:\n{}",
                              axis.name, value, problem));
    }
  }
}

Bounds read_bounds(const Options& search) {
  Bounds bounds;
  const auto integer = [&](const char* name, std::optional<std::int64_t>& to) {
    if (search.has(name)) to = search.integer(name);
  };
  integer("parameters", bounds.parameters);
  integer("memory", bounds.memory);
  integer("memory_limit", bounds.memory_limit);
  bounds.tolerance = search.real("tolerance");
  bounds.context = search.integer("context");
  if (!bounds.any())
    fail_config(
        "transform minitron: [transform.search] has no bound, so the largest shape would win; give "
        "parameters, memory or memory_limit");
  return bounds;
}

ModelSize size_of(std::span<const StoredTensor> parameters, const GraphSpec& graph, std::int64_t context,
                  std::int64_t activation_bytes) {
  ModelSize size;
  for (const StoredTensor& tensor : parameters) {
    size.parameters += tensor.shape.elements();
    size.weight_bytes += dtype_bytes(tensor.dtype, tensor.shape.elements());
  }
  for (const NodeSpec& node : graph.nodes) {
    if (node.type == "attention") {
      const std::int64_t window = integer_option(node, "window", 0);
      const std::int64_t positions = window > 0 ? std::min(window, context) : context;
      size.cache_bytes += 2 * key_features(graph, node) * positions * activation_bytes;
    } else if (node.type == "mamba2") {
      const std::int64_t heads = integer_option(node, "heads", 1), state = integer_option(node, "state", 128);
      const std::int64_t inner = heads * integer_option(node, "head_width", 64);
      const std::int64_t channels = inner + 2 * integer_option(node, "groups", 1) * state;
      // The state is f32 whatever the activations are.
      size.state_bytes +=
          4 * inner * state + (integer_option(node, "conv", 4) - 1) * channels * activation_bytes;
    }
  }
  return size;
}

double distance(const ModelSize& size, const Bounds& bounds) {
  double far = 0;
  const auto outside = [&](double by) { far = std::max(far, by); };
  if (bounds.parameters) outside(std::abs(apart(size.parameters, *bounds.parameters)) - bounds.tolerance);
  if (bounds.memory) outside(std::abs(apart(size.memory(), *bounds.memory)) - bounds.tolerance);
  if (bounds.memory_limit) outside(apart(size.memory(), *bounds.memory_limit));
  return far;
}

std::vector<Candidate> within(std::vector<Candidate> candidates, const Bounds& bounds) {
  const auto nearest = std::ranges::min_element(
      candidates, {}, [&](const Candidate& candidate) { return distance(candidate.size, bounds); });
  if (nearest == candidates.end())
    fail_config("transform minitron: no shape of [transform.search] can be cut from the model");
  if (distance(nearest->size, bounds) > 0)
    fail_config(fmt::format(
        "transform minitron: none of {} shapes is within the bounds: {}; the nearest is {}: {}. Give other "
        "lists, or bounds near it",
        candidates.size(), bounds_text(bounds), shape_text(nearest->targets), size_text(nearest->size)));
  std::erase_if(candidates, [&](const Candidate& candidate) { return distance(candidate.size, bounds) > 0; });
  return candidates;
}

void rank(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.loss != b.loss ? a.loss < b.loss : a.size.parameters < b.size.parameters;
  });
}

std::string shape_text(const Targets& targets) {
  std::vector<std::string> parts;
  for (const SearchedAxis& axis : kSearched)
    if (targets.*axis.target) parts.push_back(fmt::format("{} {}", axis.name, *(targets.*axis.target)));
  if (targets.layers) parts.push_back(fmt::format("layers {}", fmt::join(*targets.layers, " ")));
  return parts.empty() ? "the whole model" : fmt::format("{}", fmt::join(parts, ", "));
}

// Files about a search.

std::string search_json(const Searched& found) {
  const std::vector<Candidate>& ranked = found.ranked;
  const Bounds& bounds = found.bounds;
  const auto number = [](const std::optional<std::int64_t>& value) {
    return value ? std::to_string(*value) : std::string("null");
  };
  std::string out = fmt::format(
      "{{\n  \"bounds\": {{\"parameters\": {}, \"memory\": {}, \"memory_limit\": {}, \"tolerance\": {}, "
      "\"context\": {}}},\n  \"enumerated\": {},\n  \"within\": {},\n  \"taken\": {},\n  \"shapes\": [\n",
      number(bounds.parameters), number(bounds.memory), number(bounds.memory_limit), bounds.tolerance,
      bounds.context, found.enumerated, ranked.size(), found.taken + 1);
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const Candidate& one = ranked[i];
    out += "    {";
    for (const SearchedAxis& axis : kSearched)
      if (one.targets.*axis.target)
        out += fmt::format("\"{}\": {}, ", axis.name, *(one.targets.*axis.target));
    out += fmt::format(
        "\"parameters\": {}, \"weight_bytes\": {}, \"cache_bytes\": {}, \"state_bytes\": {}, \"memory\": {}, "
        "\"loss\": {}}}{}\n",
        one.size.parameters, one.size.weight_bytes, one.size.cache_bytes, one.size.state_bytes,
        one.size.memory(), one.loss, i + 1 < ranked.size() ? "," : "");
  }
  return out + "  ]\n}\n";
}

namespace {

constexpr double kSearchWidth = 640, kSearchHeight = 400, kPlotLeft = 70, kPlotRight = 20, kPlotTop = 48,
                 kPlotBottom = 54;

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// With a margin; of one value as wide as that needs.
  Extent padded() const {
    const double margin = high > low ? 0.08 * (high - low) : std::max(1e-3, 0.05 * std::abs(high));
    Extent out;
    out.low = low - margin;
    out.high = high + margin;
    return out;
  }
};

std::string words(double x, double y, const char* anchor, int size, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y,
                     size, anchor, text);
}

}  // namespace

std::string search_svg(const Searched& found) {
  const std::vector<Candidate>& ranked = found.ranked;
  const Bounds& bounds = found.bounds;
  const std::size_t taken = found.taken;
  const bool memory = !bounds.parameters;
  const auto size_in = [&](const Candidate& one) {
    return static_cast<double>(memory ? one.size.memory() : one.size.parameters) / (memory ? 1048576.0 : 1e3);
  };
  Extent x, y;
  for (const Candidate& one : ranked) {
    x.add(size_in(one));
    y.add(one.loss);
  }
  x = x.padded();
  y = y.padded();
  const double right = kSearchWidth - kPlotRight, bottom = kSearchHeight - kPlotBottom;
  const auto at_x = [&](double v) {
    return kPlotLeft + (right - kPlotLeft) * (v - x.low) / (x.high - x.low);
  };
  const auto at_y = [&](double v) { return bottom - (bottom - kPlotTop) * (v - y.low) / (y.high - y.low); };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      kSearchWidth, kSearchHeight);
  out += words(16, 24, "start", 15, fmt::format("{} shapes within the bounds", ranked.size()));
  for (int i = 0; i <= 4; ++i) {
    const double vx = x.low + (x.high - x.low) * i / 4, vy = y.low + (y.high - y.low) * i / 4;
    out += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#ddd\"/>\n", kPlotLeft, at_y(vy), right);
    out += words(at_x(vx), bottom + 18, "middle", 11, fmt::format("{:.4g}", vx));
    out += words(kPlotLeft - 8, at_y(vy) + 4, "end", 11, fmt::format("{:.3f}", vy));
  }
  out += words((kPlotLeft + right) / 2, kSearchHeight - 14, "middle", 12,
               memory ? fmt::format("weights and one sequence of {} tokens, MiB", bounds.context)
                      : std::string("parameters, thousands"));
  out += fmt::format(
      "<text x=\"16\" y=\"{:.1f}\" font-size=\"12\" text-anchor=\"middle\" transform=\"rotate(-90 16 "
      "{:.1f})\">"
      "loss before training</text>\n",
      (kPlotTop + bottom) / 2, (kPlotTop + bottom) / 2);
  const auto mark = [&](std::size_t i, int radius, const char* colour) {
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{}: {:.4f}</title></circle>\n",
        at_x(size_in(ranked[i])), at_y(ranked[i].loss), radius, colour, shape_text(ranked[i].targets),
        ranked[i].loss);
  };
  for (std::size_t i = 0; i < ranked.size(); ++i)
    if (i != taken) mark(i, 4, "#0072b2");
  mark(taken, 6, "#d55e00");
  const double label_x = at_x(size_in(ranked[taken]));
  out += words(label_x, at_y(ranked[taken].loss) - 11, label_x > kSearchWidth / 2 ? "end" : "start", 12,
               "taken: " + shape_text(ranked[taken].targets));
  return out + "</svg>\n";
}

}  // namespace tenon::minitron
