// Every element is summed in float64, in the order of the sources, and rounded once. An element that is the
// same in all of them is kept, so a mix of one model with itself is that model to the bit, whatever the
// shares round to.
#include "merge.hpp"

#include <tenon/config.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>

namespace tenon::transform_basic {
namespace {

constexpr std::size_t kMostDifferences = 40;

std::string described(const StoredTensor& tensor) {
  return fmt::format("{} {}", dtype_name(tensor.dtype), tensor.shape.text());
}

std::string shown(const std::string& value) {
  return value.empty() ? "absent" : value;
}

void compare(const StoredModel& first, const StoredModel& other, std::vector<std::string>& lines) {
  const std::string_view there = other.folder();
  for (const Difference& difference : differences(first.description().model, other.description().model))
    lines.push_back(fmt::format("  [model] {}: {} in {}, {} in {}", difference.key, shown(difference.left),
                                first.folder(), shown(difference.right), there));
  const auto value_of = [](const StoredModel& model, const std::string& name) {
    const auto& attributes = model.description().attributes;
    const auto found = std::ranges::find(attributes, name, &DataAttribute::name);
    return found == attributes.end() ? std::nullopt : std::optional(found->value);
  };
  for (const DataAttribute& attribute : first.description().attributes) {
    const std::optional<std::int64_t> there_value = value_of(other, attribute.name);
    if (there_value && *there_value != attribute.value)
      lines.push_back(fmt::format("  {} of the data: {} in {}, {} in {}", attribute.name, attribute.value,
                                  first.folder(), *there_value, there));
  }
  std::map<std::string_view, const StoredTensor*> unseen;
  for (const StoredTensor& tensor : other.parameters()) unseen[tensor.name] = &tensor;
  for (const StoredTensor& tensor : first.parameters()) {
    const auto found = unseen.find(tensor.name);
    if (found == unseen.end()) {
      lines.push_back(fmt::format("  {}: in {}, not in {}", tensor.name, first.folder(), there));
      continue;
    }
    if (tensor.dtype != found->second->dtype || tensor.shape != found->second->shape)
      lines.push_back(fmt::format("  {}: {} in {}, {} in {}", tensor.name, described(tensor), first.folder(),
                                  described(*found->second), there));
    unseen.erase(found);
  }
  for (const auto& [name, tensor] : unseen)
    lines.push_back(fmt::format("  {}: in {}, not in {}", name, there, first.folder()));
}

/// All differences of all sources in one error.
void require_equal(std::span<StoredModel* const> sources) {
  std::vector<std::string> lines;
  for (std::size_t i = 1; i < sources.size(); ++i) compare(*sources[0], *sources[i], lines);
  if (lines.empty()) return;
  const std::size_t all = lines.size();
  if (all > kMostDifferences) {
    lines.resize(kMostDifferences);
    lines.push_back(fmt::format("  and {} more", all - kMostDifferences));
  }
  fail_config(
      fmt::format("transform merge mixes models of equal parameters and options, found {} difference{}:\n{}",
                  all, all == 1 ? "" : "s", fmt::join(lines, "\n")));
}

void mix(std::span<StoredModel* const> sources, std::span<const double> shares, const StoredTensor& tensor,
         TensorWriter& out) {
  const bool complex = dtype_is_complex(tensor.dtype);
  const bool real = complex || is_floating_point(tensor.dtype);
  std::vector<std::byte> memory, first;
  std::vector<double> sum, of_first;
  std::vector<char> alike;
  for_each_slice(tensor.shape, kSliceElements, [&](const Shape& offset, const Shape& extents) {
    memory.resize(dtype_bytes(tensor.dtype, extents.elements()));
    const TensorView view{memory.data(), extents, tensor.dtype, MemorySpace::kHost};
    for (std::size_t i = 0; i < sources.size(); ++i) {
      sources[i]->read(tensor.name, offset, view);
      if (i == 0) first = memory;
      if (!real) {
        if (memory != first)
          fail_run(
              fmt::format("transform merge: '{}' is {}, which has no mean, and differs between {} and {}",
                          tensor.name, dtype_name(tensor.dtype), sources[0]->folder(), sources[i]->folder()));
        continue;
      }
      if (i == 0) {
        of_first.clear();
        for_each_real(view, [&](double value) { of_first.push_back(value); });
        sum.assign(of_first.size(), 0);
        alike.assign(of_first.size(), 1);
      }
      std::size_t at = 0;
      for_each_real(view, [&](double value) {
        // A source of share 0 adds nothing, whatever it holds.
        if (shares[i] > 0) sum[at] += shares[i] * value;
        if (value != of_first[at]) alike[at] = 0;
        ++at;
      });
    }
    if (real) {
      for (std::size_t at = 0; at < sum.size(); ++at)
        if (alike[at] != 0) sum[at] = of_first[at];
      store(sum, view);
    }
    out.write(view);
  });
}

}  // namespace

Merge::Merge(const Options& options) {
  const std::span<const double> weights = options.reals("weights");
  weights_.assign(weights.begin(), weights.end());
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  if (!weights_.empty() && !(sum > 0 && std::isfinite(sum)))
    fail_config(
        fmt::format("transform merge: option 'weights' has the sum {}, expected a finite one above 0", sum));
}

std::vector<double> Merge::shares(std::size_t sources) const {
  if (sources < 2)
    fail_config(
        fmt::format("transform merge mixes two models or more, found {}; name several folders in `from`, or "
                    "several steps of one in `step`",
                    sources));
  if (!weights_.empty() && weights_.size() != sources)
    fail_config(fmt::format(
        "transform merge: option 'weights' has {} numbers, expected one for each of the {} models",
        weights_.size(), sources));
  std::vector<double> shares = weights_.empty() ? std::vector<double>(sources, 1) : weights_;
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

TransformedModel Merge::describe(std::span<StoredModel* const> sources) {
  shares(sources.size());
  require_equal(sources);
  return {sources[0]->description(), parameters_of(*sources[0])};
}

void Merge::run(std::span<StoredModel* const> sources, TensorWriter& out) {
  const std::vector<double> parts = shares(sources.size());
  require_equal(sources);
  for (const StoredTensor& tensor : sources[0]->parameters()) mix(sources, parts, tensor, out);
}

}  // namespace tenon::transform_basic
