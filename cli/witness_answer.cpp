#include "witness_answer.hpp"

#include <fmt/format.h>

#include <set>
#include <string_view>

namespace tenon::cli {
namespace {

std::string_view moment_of(std::string_view phase) {
  if (phase == "input") return "as the batch was read";
  if (phase == "output") return "as the node computed it";
  if (phase == "gradient") return "after the gradient exchange, before the update";
  if (phase == "round") return "after the strategy's round";
  return "after the update";
}

bool of_micro(std::string_view phase) {
  return phase == "input" || phase == "output";
}

std::set<std::int64_t> all_slots(const train::WitnessComparison& comparison) {
  return {comparison.slots.begin(), comparison.slots.end()};
}

}  // namespace

std::string witness_text(const train::WitnessComparison& comparison, const std::string& first,
                         const std::string& second) {
  const std::string compared =
      fmt::format("{} tensors of {} slot(s) and {} rank(s) were compared (slots {})", comparison.tensors,
                  comparison.slots.size(), comparison.ranks, train::slots_text(all_slots(comparison)));
  if (!comparison.first) return fmt::format("no tensor differs: {}\n", compared);
  const train::WitnessDifference& found = *comparison.first;
  std::string text = fmt::format(
      "the first difference is in slot {} on rank {}: {} '{}' of layer '{}', {}{}\n", found.slot, found.rank,
      found.name.phase, found.name.tensor, found.name.layer, moment_of(found.name.phase),
      of_micro(found.name.phase) ? fmt::format(", micro-batch {}", found.micro) : "");
  if (!found.problem.empty())
    text += fmt::format("the two went another way there ({} first, {} second): {}\n", first, second,
                        found.problem);
  text += fmt::format("in this slot {} of {} tensors differ; earlier slots are equal; {}\n", found.differing,
                      found.compared, compared);
  return text;
}

void add_witness(JsonWriter& json, const train::WitnessComparison& comparison) {
  json.member("first_slot", comparison.slots.front());
  json.member("last_slot", comparison.slots.back());
  json.member("slots", static_cast<std::int64_t>(comparison.slots.size()));
  json.member("ranks", comparison.ranks);
  json.member("tensors", comparison.tensors);
  json.member("equal", !comparison.first.has_value());
  if (!comparison.first) return;
  const train::WitnessDifference& found = *comparison.first;
  json.begin_object("first");
  json.member("slot", found.slot);
  json.member("rank", found.rank);
  json.member("phase", found.name.phase);
  json.member("layer", found.name.layer);
  json.member("tensor", found.name.tensor);
  json.member("micro", found.micro);
  json.member("differing", found.differing);
  json.member("compared", found.compared);
  if (!found.problem.empty()) json.member("problem", found.problem);
  json.end_object();
}

}  // namespace tenon::cli
