// Whole numbers stay small, since a composition has a few slots, ranks and rows; seconds stay below a
// hundredth, since they are waited for.
#include "fuzz/option_values.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::fuzz {
namespace {

constexpr std::int64_t kLargestNumber = 64;
constexpr double kLongestSeconds = 0.01;
/// Most compositions run for so many slots.
constexpr std::int64_t kUsualSlots = 8;
/// Share of the options that act in no composition by default that are given a value.
constexpr double kShareOfLate = 0.9;
/// Sizes in bytes are multiples of it, odd so that remainders stay: tensors that travel in pieces of a few
/// bytes take minutes.
constexpr double kFewestBytes = 509;

std::string_view unit_of(const tenon_option_v1& spec) {
  return spec.unit == nullptr ? "" : spec.unit;
}

bool counts_slots(const tenon_option_v1& spec) {
  return spec.type == TENON_OPTION_INT && unit_of(spec) == "slots";
}

bool is_time(const tenon_option_v1& spec) {
  const std::string_view unit = unit_of(spec);
  return unit == "s" || unit == "min" || unit == "h";
}

std::optional<Value> default_of(const tenon_option_v1& spec) {
  if (spec.default_toml == nullptr) return std::nullopt;
  return parse_value(spec.default_toml, {"default", 0, 0});
}

/// Whether what the option begins, repeats or saves would never happen by default: that is a slot after the
/// end of the run, or none.
bool acts_too_late(const tenon_option_v1& spec) {
  if (!counts_slots(spec)) return false;
  const std::optional<Value> usual = default_of(spec);
  return !usual || (usual->type() == Value::Type::kInteger && usual->integer() >= kUsualSlots);
}

/// A number that the range permits, from the candidates; the nearest permitted one otherwise.
double within(const tenon_option_v1& spec, double value) {
  if (!std::isnan(spec.min)) value = std::max(value, spec.min);
  if (!std::isnan(spec.max)) value = std::min(value, spec.max);
  return value;
}

std::int64_t draw_integer(const tenon_option_v1& spec, Draws& draws) {
  const std::optional<Value> usual = default_of(spec);
  const double low = std::isnan(spec.min) ? 0 : spec.min;
  const std::uint64_t way = draws.below(10);
  // What a run begins or repeats comes early, so that it lies on both sides of a checkpoint.
  const double near = low + static_cast<double>(draws.below(counts_slots(spec) ? 5 : 9));
  double value = near;
  if (way == 0) value = low;
  if (way == 1) value = !std::isnan(spec.max) && spec.max <= kLargestNumber ? spec.max : low + 1;
  if (way <= 3 && way >= 2 && usual && usual->type() == Value::Type::kInteger)
    value = static_cast<double>(usual->integer()) + static_cast<double>(draws.between(-1, 1));
  if (way == 4) value = static_cast<double>(std::int64_t{1} << draws.below(counts_slots(spec) ? 4 : 7));
  if (acts_too_late(spec)) value = near;
  if (unit_of(spec) == "byte") value *= kFewestBytes;
  return static_cast<std::int64_t>(within(spec, value));
}

double draw_real(const tenon_option_v1& spec, Draws& draws) {
  const std::optional<Value> usual = default_of(spec);
  const bool has_usual = usual &&
                         (usual->type() == Value::Type::kReal || usual->type() == Value::Type::kInteger) &&
                         std::isfinite(usual->real());
  const std::uint64_t way = draws.below(7);
  const double factor = std::vector<double>{0.1, 0.5, 2, 10}[draws.below(4)];
  double value = has_usual && usual->real() != 0 ? usual->real() * factor : draws.uniform();
  if (way == 0 && !std::isnan(spec.min)) value = spec.min;
  if ((way == 1 || way == 6) && !std::isnan(spec.max) && spec.max <= 1000) value = spec.max;
  if (way == 2 && has_usual) value = usual->real();
  if (way == 3 && !std::isnan(spec.min) && !std::isnan(spec.max) && spec.max - spec.min <= 1000)
    value = spec.min + draws.uniform() * (spec.max - spec.min);
  if (is_time(spec)) value = std::min(value, kLongestSeconds);
  // Few digits, so that a file reads well.
  value = std::stod(std::to_string(value * 1e6)) / 1e6;
  return within(spec, value);
}

std::vector<std::string> choices_of(const tenon_option_v1& spec) {
  std::vector<std::string> all;
  for (const char* const* choice = spec.choices; choice != nullptr && *choice != nullptr; ++choice)
    all.emplace_back(*choice);
  return all;
}

template <typename Element>
std::optional<Value> draw_list(const tenon_option_v1& spec, Draws& draws, Element&& element) {
  const std::uint64_t count = spec.length > 0 ? spec.length : draws.below(4);
  Value::Array list;
  for (std::uint64_t i = 0; i < count; ++i) list.push_back(element());
  return Value(std::move(list));
}

/// A table of a sections or tables option.
Value draw_section(const tenon_option_v1* const* options, OptionRequest& request) {
  Value table;
  for (; options != nullptr && *options != nullptr; ++options) {
    const bool mandatory = ((*options)->flags & TENON_OPTION_REQUIRED) != 0;
    if (!mandatory && !request.draws.chance(0.3)) continue;
    if (std::optional<Value> value = draw_value(**options, request))
      table.set((*options)->name, std::move(*value), {});
  }
  return table;
}

std::optional<Value> draw_inner(const tenon_option_v1& spec, OptionRequest& request) {
  const std::vector<std::string> ids = request.registry.ids(spec.component_kind);
  if (ids.empty() || request.depth <= 0) return std::nullopt;
  OptionRequest inner{request.registry, request.draws, request.share, request.depth - 1, request.folder};
  const std::string kind = spec.component_kind;
  if ((spec.flags & TENON_OPTION_LIST) == 0) return draw_component(kind, inner.draws.one_of(ids), inner);
  Value::Array list;
  for (std::uint64_t left = 1 + inner.draws.below(2); left > 0; --left)
    list.push_back(draw_component(kind, inner.draws.one_of(ids), inner));
  return Value(std::move(list));
}

}  // namespace

std::optional<Value> draw_value(const tenon_option_v1& spec, OptionRequest& request) {
  Draws& draws = request.draws;
  const std::vector<std::string> choices = choices_of(spec);
  const bool mandatory = (spec.flags & TENON_OPTION_REQUIRED) != 0;
  switch (static_cast<tenon_option_type>(spec.type)) {
    case TENON_OPTION_BOOL:
      return Value(draws.chance(0.5));
    case TENON_OPTION_INT:
      return Value(draw_integer(spec, draws));
    case TENON_OPTION_REAL:
      return Value(draw_real(spec, draws));
    case TENON_OPTION_TEXT:
      if (choices.empty()) return std::nullopt;
      return Value(draws.one_of(choices));
    case TENON_OPTION_PATH:
      if (!mandatory || request.folder.empty()) return std::nullopt;
      return Value(request.folder);
    case TENON_OPTION_INT_LIST:
      return draw_list(spec, draws, [&] { return Value(draw_integer(spec, draws)); });
    case TENON_OPTION_REAL_LIST: {
      // The default says how large each number is.
      const std::optional<Value> usual = default_of(spec);
      if (usual && usual->is_array() && !usual->array().empty()) {
        Value::Array list;
        for (const Value& number : usual->array()) {
          const bool kept = draws.chance(0.5);
          list.push_back(Value(kept ? number.real() : within(spec, number.real() * draws.uniform())));
        }
        return Value(std::move(list));
      }
      return draw_list(spec, draws, [&] { return Value(draw_real(spec, draws)); });
    }
    case TENON_OPTION_TEXT_LIST: {
      if (choices.empty()) return std::nullopt;
      Value::Array list;
      for (const std::string& choice : choices)
        if (draws.chance(0.5)) list.push_back(Value(choice));
      return Value(std::move(list));
    }
    case TENON_OPTION_COMPONENT:
      return draw_inner(spec, request);
    case TENON_OPTION_SECTIONS: {
      Value sections;
      sections.set("*", draw_section(spec.section_options, request), {});
      return sections;
    }
    case TENON_OPTION_TABLES:
      return Value(Value::Array{draw_section(spec.section_options, request)});
    case TENON_OPTION_PATH_LIST:
      break;
  }
  return std::nullopt;
}

Value draw_component(std::string_view kind, std::string_view type, OptionRequest& request, Value kept) {
  Value table = std::move(kept);
  table.set("type", Value(std::string(type)), {});
  for (const tenon_option_v1* spec : request.registry.describe(kind, type).options) {
    const bool mandatory = (spec->flags & TENON_OPTION_REQUIRED) != 0;
    // Tables in a list are what some components consist of: they do not follow the share.
    const bool is_list = spec->type == TENON_OPTION_TABLES;
    const bool is_rare = spec->type == TENON_OPTION_SECTIONS || spec->type == TENON_OPTION_COMPONENT;
    // Drawn in any case, so that what is left out changes nothing of what follows.
    const double share = acts_too_late(*spec) ? kShareOfLate : request.share;
    const bool chosen = request.draws.chance(is_list ? 0.3 : is_rare ? share / 2 : share);
    if (table.find(spec->name) != nullptr || (!mandatory && !chosen)) continue;
    if (std::optional<Value> value = draw_value(*spec, request)) table.set(spec->name, std::move(*value), {});
  }
  return table;
}

}  // namespace tenon::fuzz
