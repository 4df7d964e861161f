// Whether the numbers of a layer fit each other. An error names the [[model.block]] that set one of them
// before the layer itself.
#include "pattern_layer.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::decoder {

void PatternLayer::refuse(std::initializer_list<std::string_view> names, const std::string& what) const {
  std::string block;
  for (const std::string_view name : names) {
    const auto sets = [&](const Block& one) { return one.options == &of(name); };
    const auto found = std::find_if(blocks_.begin(), blocks_.end(), sets);
    if (!block.empty() || found == blocks_.end()) continue;
    block = fmt::format("'block' {} (at \"{}\"), ", found->index, found->options->text("at"));
  }
  fail_config(fmt::format("model decoder: {}layer {} ({}): {}", block, number_, kind(), what));
}

void PatternLayer::check() const {
  if (!is_attention()) {
    if (!has("hidden")) refuse({}, "'hidden' is missing, the width inside the FFN; set it in [model]");
    return;
  }
  if (!has("heads")) refuse({}, "'heads' is missing, the number of query heads; set it in [model]");
  if (heads() % kv_heads() != 0) {
    refuse({"kv_heads", "heads"},
           fmt::format("'kv_heads' {} does not divide 'heads' {}; expected a divisor", kv_heads(), heads()));
  }
  if (const std::int64_t width = model_->integer("width"); !has("head_width") && width % heads() != 0) {
    refuse({"heads"},
           fmt::format("'heads' {} does not divide 'width' {}; expected a divisor, or a 'head_width'",
                       heads(), width));
  }
  if (rotates() && head_width() % 2 != 0) {
    refuse(
        {"head_width", "heads"},
        fmt::format("rotary positions turn pairs of elements, so '{}' must give an even head width; found {}",
                    has("head_width") ? "head_width" : "heads", head_width()));
  }
}

}  // namespace tenon::decoder
