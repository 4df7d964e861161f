// The rules of Nemotron-H: the first layer is Mamba-2, the last an FFN, an FFN follows every attention layer,
// about 8 % of the layers are attention, evenly spread, and the others are Mamba-2 and FFN about half and
// half. The published patterns determine what "about" and "evenly" mean here: the bounds are round numbers
// that all of them keep. The attention of the 4B, 8B, 9B, 12B and 56B models is 7.1 % to 9.7 %, that of the
// 47B model 5.1 %; of its layers 26 in a row have none, 1.6 times the even share. The 47B model of the paper
// has 49 FFNs and 44 Mamba-2 layers.
#include "pattern_rules.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tenon::decoder {
namespace {

constexpr double kLeastAttention = 0.04, kMostAttention = 0.12;  ///< of all layers
constexpr double kMostStretch = 1.75;    ///< layers in a row without attention, in even shares
constexpr double kLeastDistance = 0.5;   ///< between neighbouring attention layers, in even shares
constexpr double kMostDifference = 0.1;  ///< between Mamba-2 layers and FFNs, of both

class Rulebook {
 public:
  Rulebook(const Options& model, std::span<const PatternLayer> layers) : model_(model) {
    for (const PatternLayer& layer : layers)
      if (!layer.skipped()) layers_.push_back(&layer);
  }

  std::vector<std::string> broken() {
    ends();
    followers();
    share();
    spread();
    halves();
    options();
    return std::move(broken_);
  }

 private:
  template <typename... Values>
  void breaks(fmt::format_string<Values...> text, Values&&... values) {
    broken_.push_back(fmt::format(text, std::forward<Values>(values)...));
  }
  std::int64_t count(Kind kind) const {
    return std::ranges::count_if(layers_, [&](const PatternLayer* layer) { return layer->kind() == kind; });
  }
  std::int64_t size() const { return static_cast<std::int64_t>(layers_.size()); }

  void ends() {
    if (const PatternLayer& first = *layers_.front(); !first.is_mamba())
      breaks("the first layer is M: layer {} is {}", first.number(), first.letter());
    if (const PatternLayer& last = *layers_.back(); !last.is_ffn())
      breaks("the last layer is -: layer {} is {}", last.number(), last.letter());
  }
  void followers() {
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
      const PatternLayer &layer = *layers_[i], &next = *layers_[i + 1];
      if (layer.is_attention() && !next.is_ffn())
        breaks("- follows every *: layer {} is *, and layer {} is {}", layer.number(), next.number(),
               next.letter());
    }
  }
  void share() {
    const auto layers = static_cast<double>(size());
    const auto least = static_cast<std::int64_t>(std::ceil(kLeastAttention * layers));
    const auto most = std::max<std::int64_t>(1, static_cast<std::int64_t>(kMostAttention * layers));
    const std::int64_t found = count(Kind::kAttention);
    if (found < least || found > most)
      breaks("about 8 % of the layers are *, which is {} to {} of {}: there are {}", least, most, size(),
             found);
  }
  void spread() {
    const double even = static_cast<double>(size()) / static_cast<double>(count(Kind::kAttention) + 1);
    std::int64_t begin = 0;                // of the layers without attention, among those that stay
    const PatternLayer* before = nullptr;  // the attention layer before them
    for (std::int64_t at = 0; at <= size(); ++at) {
      if (at < size() && !layers_[at]->is_attention()) continue;
      const std::int64_t stretch = at - begin;
      if (count(Kind::kAttention) > 0 && static_cast<double>(stretch) > kMostStretch * even)
        breaks("* are evenly spread: from layer {} on {} layers have none, more than {} times {:.1f}",
               layers_[begin]->number(), stretch, kMostStretch, even);
      if (at < size() && before != nullptr && static_cast<double>(stretch + 1) < kLeastDistance * even)
        breaks("* are evenly spread: layers {} and {} are *, nearer than half of {:.1f}", before->number(),
               layers_[at]->number(), even);
      if (at < size()) before = layers_[at];
      begin = at + 1;
    }
  }
  void halves() {
    const std::int64_t mamba = count(Kind::kMamba), ffn = count(Kind::kFfn);
    const auto most = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(kMostDifference * static_cast<double>(mamba + ffn)));
    if (std::abs(mamba - ffn) > most)
      breaks("M and - are about as many, at most {} apart: there are {} M and {} -", most, mamba, ffn);
  }
  /// Breaks a rule once, for the first layer that it is broken in.
  template <typename Predicate>
  void each(Predicate breaks_it, std::string_view rule, std::string_view what) {
    const auto found =
        std::ranges::find_if(layers_, [&](const PatternLayer* layer) { return breaks_it(*layer); });
    if (found != layers_.end()) breaks("{}: in layer {} {}", rule, (*found)->number(), what);
  }
  void options() {
    if (model_.choice("position", kPositions) == Position::kLearned)
      breaks("there are no positions: 'position' is learned");
    if (model_.boolean("tied")) breaks("embedding and head are not tied: 'tied' is true");
    each([](const PatternLayer& layer) { return layer.is_attention() && layer.rotates(); },
         "there are no positions", "'position' is rope");
    each([](const PatternLayer& layer) { return layer.choice("norm", kNorms) != Norm::kRms; },
         "norms are RMS norms", "'norm' is layer");
    each(
        [](const PatternLayer& layer) {
          return layer.is_ffn() && layer.choice("ffn", kFfns) != Ffn::kSquaredRelu;
        },
        "FFNs have a squared ReLU", "'ffn' is not squared_relu");
    each(
        [](const PatternLayer& layer) {
          return layer.is_ffn() ? layer.has_bias("ffn")
                                : layer.is_attention() && (layer.has_bias("qkv") || layer.has_bias("out"));
        },
        "linear maps have no bias", "'bias' is not []");
  }

  const Options& model_;
  std::vector<const PatternLayer*> layers_;  ///< those that stay
  std::vector<std::string> broken_;
};

}  // namespace

void require_nemotron_h(const Options& model, std::span<const PatternLayer> layers) {
  const std::vector<std::string> broken = Rulebook(model, layers).broken();
  if (broken.empty()) return;
  fail_config(
      fmt::format("model decoder: 'rules' is nemotron_h, and the model breaks:\n  {}\nchange "
                  "'pattern', or set rules = \"free\"",
                  fmt::join(broken, "\n  ")));
}

}  // namespace tenon::decoder
