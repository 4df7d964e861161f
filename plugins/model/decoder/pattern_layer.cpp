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
  fail_config(fmt::format("model decoder: {}layer {} ({}): {}", block, number_, kind_name(), what));
}

void PatternLayer::check() const {
  if (is_ffn() && !has("hidden"))
    refuse({}, "'hidden' is missing, the width inside the FFN; set it in [model]");
  if (is_attention()) check_attention();
  if (is_mamba()) check_mamba();
}

void PatternLayer::check_attention() const {
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

void PatternLayer::check_mamba() const {
  if (!has("mamba_heads")) refuse({}, "'mamba_heads' is missing, the number of its heads; set it in [model]");
  const std::int64_t heads = integer("mamba_heads"), groups = integer("mamba_groups");
  if (heads % groups != 0) {
    refuse(
        {"mamba_groups", "mamba_heads"},
        fmt::format("'mamba_heads' {} is no multiple of 'mamba_groups' {}; expected as many heads in every "
                    "group",
                    heads, groups));
  }
  if (integer("mamba_head_width") > kMost / heads) {
    refuse({"mamba_head_width", "mamba_heads"},
           fmt::format("'mamba_heads' {} of 'mamba_head_width' {} have more than {} elements", heads,
                       integer("mamba_head_width"), kMost));
  }
  const auto limits = reals("mamba_dt_limits");
  if (limits[1] != 0 && limits[1] < limits[0]) {
    refuse({"mamba_dt_limits"},
           fmt::format("'mamba_dt_limits' is [{}, {}]; expected the lower bound first, or 0 for none",
                       limits[0], limits[1]));
  }
}

void PatternLayer::check_context(std::int64_t context) const {
  if (!is_mamba() || integer("mamba_conv") <= context) return;
  refuse({"mamba_conv"},
         fmt::format("'mamba_conv' {} sees more tokens than a context of {} has; expected at most {}",
                     integer("mamba_conv"), context, context));
}

}  // namespace tenon::decoder
