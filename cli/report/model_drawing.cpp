// Drawing of a graph in layers (Sugiyama, Tagawa and Toda 1981): longest paths give layers, edges over
// several layers get a bend in each, medians of neighbours give the order and the places. A longest path is a
// straight line, the spine, and so is an edge past it. First the repeated blocks are folded; then layers,
// order and places; then columns and shapes.
#include "report/model_drawing.hpp"

#include "ab/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>

namespace tenon::report {
namespace {

constexpr std::size_t kLayersOfColumn = 16;
constexpr double kBoxHeight = 54, kLayerGap = 30, kBoxGap = 18, kMargin = 24, kColumnGap = 64;
constexpr double kBendWidth = 12;

constexpr const char* kStyle = R"(<style>
.tg text{font:12px system-ui,"Segoe UI",Roboto,"Liberation Sans",sans-serif;fill:#1c2126}
.tg .tg-name{font-weight:600}
.tg text.tg-soft{fill:#5a646e;font-size:11px}
.tg .tg-page{fill:#ffffff}
.tg .tg-box{fill:#f6f7f9;stroke:#9ba5af}
.tg .tg-site{fill:#e3effa;stroke:#0b62a8}
.tg .tg-data{fill:#ffffff;stroke:#9ba5af;stroke-dasharray:4 3}
.tg .tg-frame{fill:none;stroke:#b3541e;stroke-width:1.5;stroke-dasharray:7 4}
.tg text.tg-times{fill:#b3541e;font-weight:600}
.tg .tg-edge{fill:none;stroke:#7a848e;stroke-width:1.2}
.tg .tg-tip{fill:#7a848e}
</style>
)";

/// "h.3.mlp.act" -> "h", 3, "mlp.act"; empty for a name without a part that is a number.
struct BlockName {
  std::string prefix, rest;
  int index = 0;
};

std::optional<BlockName> block_of(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool digits = part.size() < 7 && part.find_first_not_of("0123456789") == std::string::npos;
    if (digits && !part.empty()) {
      return BlockName{name.substr(0, begin), end < name.size() ? name.substr(end + 1) : "", std::stoi(part)};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

/// Consecutive nodes of one block.
struct Block {
  std::string prefix;
  int index = 0;
  std::size_t first = 0, last = 0;  ///< nodes [first, last)
  std::string signature;
};

/// The structure of a block: equal for blocks that compute the same from other inputs with other weights.
std::string signature_of(const ModelGraph& graph, const Block& block) {
  std::map<std::string, std::string> inside;
  std::map<std::string, std::size_t> outside;
  std::string text;
  for (std::size_t i = block.first; i < block.last; ++i) {
    const ModelGraph::Node& node = graph.nodes[i];
    const std::string rest = block_of(node.name)->rest;
    text += rest + " " + node.type + "(";
    for (const std::string& input : node.inputs) {
      const auto found = inside.find(source_of(input));
      if (found != inside.end())
        text += found->second + input.substr(found->first.size());
      else
        text += fmt::format("^{}", outside.emplace(input, outside.size()).first->second);
      text += ",";
    }
    for (const ModelGraph::Value& value : node.outputs) text += value.shape + value.dtype;
    for (const ModelGraph::Parameter& parameter : node.parameters) text += parameter.shape + parameter.dtype;
    for (const ModelGraph::Site& site : node.sites) text += site.unquantized ? "u" : "q";
    text += ")";
    inside[node.name] = "." + rest;
  }
  return text;
}

std::vector<Block> blocks_of(const ModelGraph& graph) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto name = block_of(graph.nodes[i].name);
    if (!name) continue;
    const bool same = !blocks.empty() && blocks.back().last == i && blocks.back().prefix == name->prefix &&
                      blocks.back().index == name->index;
    if (!same) blocks.push_back({name->prefix, name->index, i, i, ""});
    blocks.back().last = i + 1;
  }
  for (Block& block : blocks) block.signature = signature_of(graph, block);
  return blocks;
}

struct Box {
  std::string name, detail, size;
  const char* css_class = "tg-box";
  int frame = -1;
  std::vector<std::size_t> sources;  ///< boxes, each once
  std::size_t layer = 0;
};

/// The boxes to draw, in an order in which sources come first.
struct Picture {
  std::vector<Box> boxes;
  std::vector<std::string> frames;  ///< texts
};

Box box_of(const ModelGraph::Node& node) {
  Box box{node.name, node.type, "", node.sites.empty() ? "tg-box" : "tg-site", -1, {}, 0};
  for (const ModelGraph::Value& value : node.outputs)
    box.detail += fmt::format(" {} {}", value.shape, value.dtype);
  std::int64_t elements = 0;
  bool tied = false;
  for (const ModelGraph::Parameter& parameter : node.parameters) {
    elements += parameter.elements;
    tied |= parameter.tied;
  }
  if (elements > 0) box.size = grouped_digits(elements) + (tied ? " elements, some tied" : " elements");
  return box;
}

class Folder {
 public:
  explicit Folder(const ModelGraph& graph) : graph_(graph) {}

  Picture fold() {
    std::vector<int> frame(graph_.nodes.size(), -1);
    std::vector<bool> drawn(graph_.nodes.size(), true);
    std::map<std::string, std::string> stands_for;
    const std::vector<Block> blocks = blocks_of(graph_);
    for (std::size_t b = 0; b < blocks.size();) {
      std::size_t end = b + 1;
      while (end < blocks.size() && blocks[end].first == blocks[end - 1].last &&
             blocks[end].prefix == blocks[b].prefix && blocks[end].signature == blocks[b].signature)
        ++end;
      if (end - b > 1) fold_blocks({&blocks[b], end - b}, frame, drawn, stands_for);
      b = end;
    }
    add_fields(drawn);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const ModelGraph::Node& node = graph_.nodes[i];
      if (drawn[i]) {
        boxes_[node.name] = out_.boxes.size();
        out_.boxes.push_back(box_of(node));
        out_.boxes.back().frame = frame[i];
      }
      const auto stand_in = stands_for.find(node.name);
      const std::size_t box = boxes_.at(stand_in == stands_for.end() ? node.name : stand_in->second);
      if (!drawn[i]) boxes_[node.name] = box;
      for (const std::string& input : node.inputs) connect(input, box);
    }
    return std::move(out_);
  }

 private:
  void fold_blocks(std::span<const Block> same, std::vector<int>& frame, std::vector<bool>& drawn,
                   std::map<std::string, std::string>& stands_for) {
    const Block& shown = same.front();
    for (std::size_t i = shown.first; i < shown.last; ++i) frame[i] = static_cast<int>(out_.frames.size());
    for (const Block& block : same.subspan(1)) {
      for (std::size_t i = block.first; i < block.last; ++i) {
        drawn[i] = false;
        stands_for[graph_.nodes[i].name] = graph_.nodes[shown.first + i - block.first].name;
      }
    }
    out_.frames.push_back(fmt::format("{} x  {}{} ... {}{}", same.size(), shown.prefix, shown.index,
                                      same.back().prefix, same.back().index));
  }

  /// Data fields that only folded blocks read are not drawn: those of the first block stand for them.
  void add_fields(const std::vector<bool>& drawn) {
    std::set<std::string> read;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!drawn[i]) continue;
      for (const std::string& input : graph_.nodes[i].inputs) read.insert(source_of(input));
    }
    for (const ModelGraph::Value& field : graph_.fields) {
      if (!read.contains(field.name)) continue;
      boxes_[field.name] = out_.boxes.size();
      out_.boxes.push_back(
          {field.name, fmt::format("data {} {}", field.shape, field.dtype), "", "tg-data", -1, {}, 0});
    }
  }

  /// An edge from a block to its own successor is none: both are one box.
  void connect(const std::string& input, std::size_t box) {
    const auto source = boxes_.find(source_of(input));
    if (source == boxes_.end() || source->second >= box) return;
    std::vector<std::size_t>& sources = out_.boxes[box].sources;
    if (std::ranges::find(sources, source->second) == sources.end()) sources.push_back(source->second);
  }

  const ModelGraph& graph_;
  Picture out_;
  std::map<std::string, std::size_t> boxes_;  ///< by the name of a node or field
};

/// A box, or a bend of an edge that crosses a layer.
struct Item {
  int box = -1;
  double width = kBendWidth, x = 0;       ///< x of the centre, in its column
  bool on_spine = false;                  ///< stays at x = 0
  std::vector<std::size_t> above, below;  ///< items of the neighbouring layers
};

class Layout {
 public:
  explicit Layout(Picture picture) : picture_(std::move(picture)) {
    set_layers();
    add_items();
    for (int sweep = 0; sweep < 12; ++sweep) order(sweep % 2 == 0);
    find_spine();
    place();
  }

  std::string draw(const std::string& label);

 private:
  void set_layers() {
    for (Box& box : picture_.boxes) {
      for (const std::size_t source : box.sources)
        box.layer = std::max(box.layer, picture_.boxes[source].layer + 1);
    }
    // Sources right above their first reader.
    std::vector<std::size_t> first(picture_.boxes.size(), SIZE_MAX);
    for (const Box& box : picture_.boxes) {
      for (const std::size_t source : box.sources) first[source] = std::min(first[source], box.layer);
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (picture_.boxes[i].sources.empty() && first[i] != SIZE_MAX) picture_.boxes[i].layer = first[i] - 1;
    }
  }

  std::size_t add_item(std::size_t layer, Item item) {
    if (layers_.size() <= layer) layers_.resize(layer + 1);
    layers_[layer].push_back(items_.size());
    items_.push_back(std::move(item));
    return items_.size() - 1;
  }

  void add_items() {
    std::vector<std::size_t> of_box;
    for (std::size_t i = 0; i < picture_.boxes.size(); ++i) {
      const Box& box = picture_.boxes[i];
      const std::size_t letters = std::max({box.name.size() + 1, box.detail.size(), box.size.size()});
      const double width = std::max(90.0, 22 + 6.4 * static_cast<double>(letters));
      of_box.push_back(add_item(box.layer, {static_cast<int>(i), width, 0, false, {}, {}}));
    }
    // Edges from one box share their bends.
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> bends;
    for (std::size_t i = 0; i < picture_.boxes.size(); ++i) {
      for (const std::size_t source : picture_.boxes[i].sources) {
        std::size_t from = of_box[source];
        for (std::size_t layer = picture_.boxes[source].layer + 1; layer < picture_.boxes[i].layer; ++layer) {
          const auto [bend, fresh] = bends.try_emplace({source, layer}, items_.size());
          if (fresh) {
            join(from, add_item(layer, {}));
            lines_[source].push_back(bend->second);
          }
          from = bend->second;
        }
        join(from, of_box[i]);
      }
    }
  }

  void join(std::size_t from, std::size_t to) {
    items_[from].below.push_back(to);
    items_[to].above.push_back(from);
  }

  /// Orders every layer by the mean position of its neighbours above (or below).
  void order(bool down) {
    std::vector<double> position(items_.size());
    for (const auto& layer : layers_) {
      for (std::size_t i = 0; i < layer.size(); ++i)
        position[layer[i]] = (static_cast<double>(i) + 0.5) / static_cast<double>(layer.size());
    }
    for (std::size_t step = 1; step < layers_.size(); ++step) {
      auto& layer = layers_[down ? step : layers_.size() - 1 - step];
      std::map<std::size_t, double> wanted;
      for (const std::size_t item : layer)
        wanted[item] = mean(down ? items_[item].above : items_[item].below, position, position[item]);
      std::ranges::stable_sort(layer, {}, [&](std::size_t item) { return wanted[item]; });
      for (std::size_t i = 0; i < layer.size(); ++i)
        position[layer[i]] = (static_cast<double>(i) + 0.5) / static_cast<double>(layer.size());
    }
  }

  static double mean(const std::vector<std::size_t>& items, const std::vector<double>& values,
                     double otherwise) {
    if (items.empty()) return otherwise;
    double sum = 0;
    for (const std::size_t item : items) sum += values[item];
    return sum / static_cast<double>(items.size());
  }

  /// A longest path has a box in every layer: from the last one upwards, the middle one of several. A field
  /// stands above its first reader, so no path goes on from it.
  void find_spine() {
    if (layers_.empty()) return;
    std::vector<std::size_t> boxes = layers_.back();
    while (!boxes.empty()) {
      Item& item = items_[boxes[boxes.size() / 2]];
      item.on_spine = true;
      boxes = item.above;
      std::erase_if(boxes, [&](std::size_t above) {
        const int box = items_[above].box;
        return box < 0 || (picture_.boxes[box].layer > 0 && picture_.boxes[box].sources.empty());
      });
    }
  }

  /// Moves every box towards its neighbours, and apart from those beside it; then puts the lines of bends
  /// outside of them.
  void place() {
    std::vector<std::vector<std::size_t>> boxes = layers_;
    for (auto& layer : boxes) {
      std::erase_if(layer, [&](std::size_t i) { return items_[i].box < 0; });
      spread(layer);
    }
    for (int sweep = 0; sweep < 100; ++sweep) {
      for (std::size_t step = 0; step < boxes.size(); ++step) {
        auto& layer = boxes[sweep % 2 == 0 ? step : boxes.size() - 1 - step];
        for (const std::size_t item : layer) pull(items_[item]);
        spread(layer);
      }
    }
    place_lines(boxes);
  }

  void pull(Item& item) {
    if (item.on_spine) return;
    double sum = 0;
    int count = 0;
    for (const auto* side : {&item.above, &item.below}) {
      for (const std::size_t other : *side) {
        if (items_[other].box < 0) continue;
        sum += items_[other].x;
        ++count;
      }
    }
    if (count > 0) item.x = sum / count;
  }

  /// Each line is straight, on the side of the spine where the boxes are that it joins, else on the right; a
  /// longer one is further out.
  void place_lines(const std::vector<std::vector<std::size_t>>& boxes) {
    struct Line {
      std::vector<std::size_t> bends;
      std::size_t first = 0;  ///< layer
    };
    std::vector<Line> lines;
    for (const auto& [source, bends] : lines_) lines.push_back({bends, picture_.boxes[source].layer + 1});
    std::ranges::stable_sort(lines, {}, [](const Line& line) { return line.bends.size(); });
    std::vector<double> left(layers_.size()), right(layers_.size());
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      for (const std::size_t i : boxes[layer]) {
        left[layer] = std::min(left[layer], items_[i].x - items_[i].width / 2);
        right[layer] = std::max(right[layer], items_[i].x + items_[i].width / 2);
      }
    }
    for (const Line& line : lines) {
      double between = 0;  // the boxes that it joins, to the left or right of the spine
      for (const std::size_t bend : line.bends) {
        for (const auto* side : {&items_[bend].above, &items_[bend].below})
          for (const std::size_t i : *side) between += items_[i].box < 0 ? 0 : items_[i].x;
      }
      const bool rightwards = between >= 0;
      double x = 0;
      for (std::size_t k = 0; k < line.bends.size(); ++k) {
        x = !rightwards ? std::min(x, left[line.first + k] - kBoxGap)
                        : std::max(x, right[line.first + k] + kBoxGap);
      }
      for (std::size_t k = 0; k < line.bends.size(); ++k) {
        items_[line.bends[k]].x = x;
        (rightwards ? right : left)[line.first + k] = x;
      }
    }
  }

  /// Keeps the order and the distances: away from the spine; without one, the mean of pushing to the right
  /// from the left, and the reverse.
  void spread(const std::vector<std::size_t>& layer) {
    std::vector<double> right, left(layer.size());
    const auto apart = [&](std::size_t a, std::size_t b) {
      return (items_[layer[a]].width + items_[layer[b]].width) / 2 + kBoxGap;
    };
    const auto spine = std::ranges::find_if(layer, [&](std::size_t i) { return items_[i].on_spine; });
    if (spine != layer.end()) {
      const auto at = static_cast<std::size_t>(spine - layer.begin());
      const auto x = [&](std::size_t i) -> double& { return items_[layer[i]].x; };
      for (std::size_t i = at + 1; i < layer.size(); ++i) x(i) = std::max(x(i), x(i - 1) + apart(i - 1, i));
      for (std::size_t i = at; i-- > 0;) x(i) = std::min(x(i), x(i + 1) - apart(i, i + 1));
      return;
    }
    for (std::size_t i = 0; i < layer.size(); ++i) {
      const double x = items_[layer[i]].x;
      right.push_back(i == 0 ? x : std::max(x, right[i - 1] + apart(i - 1, i)));
    }
    for (std::size_t i = layer.size(); i-- > 0;) {
      const double x = items_[layer[i]].x;
      left[i] = i + 1 == layer.size() ? x : std::min(x, left[i + 1] - apart(i, i + 1));
    }
    for (std::size_t i = 0; i < layer.size(); ++i) items_[layer[i]].x = (right[i] + left[i]) / 2;
  }

  void set_columns();
  double top_of(std::size_t layer) const {
    return kMargin + 14 + static_cast<double>(layer % per_column_) * (kBoxHeight + kLayerGap);
  }
  void draw_frames(ab::Svg& svg) const;
  void draw_edges(ab::Svg& svg) const;
  void draw_boxes(ab::Svg& svg) const;

  Picture picture_;
  std::vector<Item> items_;
  std::vector<std::vector<std::size_t>> layers_;
  std::map<std::size_t, std::vector<std::size_t>> lines_;  ///< bends by the box from which their edge comes
  std::size_t per_column_ = kLayersOfColumn;
  double width_ = 0, height_ = 0;
};

/// Shifts the items of each column to the right of those before it.
void Layout::set_columns() {
  const std::size_t columns =
      std::max<std::size_t>(1, (layers_.size() + kLayersOfColumn - 1) / kLayersOfColumn);
  per_column_ = std::max<std::size_t>(1, (layers_.size() + columns - 1) / columns);
  double left = kMargin;
  for (std::size_t begin = 0; begin < layers_.size(); begin += per_column_) {
    const std::size_t end = std::min(begin + per_column_, layers_.size());
    double low = 1e30, high = -1e30;
    for (std::size_t layer = begin; layer < end; ++layer) {
      for (const std::size_t i : layers_[layer]) {
        low = std::min(low, items_[i].x - items_[i].width / 2);
        high = std::max(high, items_[i].x + items_[i].width / 2);
      }
    }
    for (std::size_t layer = begin; layer < end; ++layer) {
      for (const std::size_t i : layers_[layer]) items_[i].x += left - low;
    }
    left += high - low + kColumnGap;
  }
  width_ = left - kColumnGap + kMargin;
  height_ = top_of(std::min(per_column_, layers_.size()) - 1) + kBoxHeight + kMargin;
}

void Layout::draw_frames(ab::Svg& svg) const {
  // A frame that goes on in the next column is drawn in both.
  std::map<std::pair<int, std::size_t>, std::array<double, 4>> edges;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const std::size_t i : layers_[layer]) {
      const Item& item = items_[i];
      if (item.box < 0 || picture_.boxes[item.box].frame < 0) continue;
      const double top = top_of(layer);
      const auto [found, fresh] = edges.try_emplace({picture_.boxes[item.box].frame, layer / per_column_},
                                                    std::array{1e30, 1e30, -1e30, -1e30});
      auto& [x0, y0, x1, y1] = found->second;
      x0 = std::min(x0, item.x - item.width / 2), x1 = std::max(x1, item.x + item.width / 2);
      y0 = std::min(y0, top), y1 = std::max(y1, top + kBoxHeight);
    }
  }
  for (const auto& [key, box] : edges) {
    const auto& [x0, y0, x1, y1] = box;
    svg.rect({x0 - 8, y0 - 8}, x1 - x0 + 16, y1 - y0 + 16, "tg-frame");
    svg.text({x0 - 4, y0 - 13}, picture_.frames[key.first], "tg-times", ab::Anchor::kStart);
  }
}

void Layout::draw_edges(ab::Svg& svg) const {
  for (std::size_t layer = 0; layer + 1 < layers_.size(); ++layer) {
    const bool wraps = (layer + 1) % per_column_ == 0;
    double lane = 0;
    for (const std::size_t i : layers_[layer]) {
      const Item& from = items_[i];
      const double bottom = top_of(layer) + kBoxHeight, top = top_of(layer + 1);
      for (const std::size_t j : from.below) {
        const Item& to = items_[j];
        std::vector<ab::Point> line;
        if (from.box < 0) line.push_back({from.x, bottom - kBoxHeight});
        line.push_back({from.x, bottom});
        if (wraps) {
          // Below the column, up between the columns, and down into the next one.
          double between = 1e30;
          for (std::size_t other = layer + 1; other < std::min(layer + 1 + per_column_, layers_.size());
               ++other) {
            for (const std::size_t k : layers_[other])
              between = std::min(between, items_[k].x - items_[k].width / 2);
          }
          between -= kColumnGap / 2 + 14 - lane;
          line.push_back({from.x, bottom + 8 + lane / 2});
          line.push_back({between, bottom + 8 + lane / 2});
          line.push_back({between, top - 26 + lane / 2});
          line.push_back({to.x, top - 26 + lane / 2});
          lane += 6;
        }
        line.push_back({to.x, top - (to.box < 0 ? 0 : 6)});
        svg.polyline(line, "tg-edge", "");
        if (to.box < 0) continue;
        const ab::Point left{to.x - 4, top - 8}, right{to.x + 4, top - 8}, tip{to.x, top};
        const ab::Point upper[] = {left, right}, lower[] = {tip};
        svg.band(upper, lower, "tg-tip");
      }
    }
  }
}

void Layout::draw_boxes(ab::Svg& svg) const {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const std::size_t i : layers_[layer]) {
      const Item& item = items_[i];
      if (item.box < 0) continue;
      const Box& box = picture_.boxes[item.box];
      const double top = top_of(layer);
      svg.rect({item.x - item.width / 2, top}, item.width, kBoxHeight, box.css_class);
      const double first = top + (box.size.empty() ? 24 : 17);
      svg.text({item.x, first}, box.name, "tg-name", ab::Anchor::kMiddle);
      svg.text({item.x, first + 15}, box.detail, "tg-soft", ab::Anchor::kMiddle);
      if (!box.size.empty()) svg.text({item.x, first + 29}, box.size, "tg-soft", ab::Anchor::kMiddle);
    }
  }
}

std::string Layout::draw(const std::string& label) {
  set_columns();
  ab::Svg svg(width_, height_, "tg", label);
  svg.rect({0, 0}, width_, height_, "tg-page");
  draw_frames(svg);
  draw_edges(svg);
  draw_boxes(svg);
  std::string text = svg.take();
  text.insert(text.find('\n') + 1, kStyle);
  return text.insert(4, fmt::format(" width=\"{:.0f}\" height=\"{:.0f}\"", width_, height_));
}

}  // namespace

std::string graph_svg(const ModelGraph& graph) {
  return Layout(Folder(graph).fold()).draw("Graph of model " + graph.model);
}

}  // namespace tenon::report
