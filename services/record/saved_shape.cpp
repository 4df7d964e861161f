// Meta entries "run/..." of the shape, and "data/<i>" = "<sha256> <path>" of the data.
#include "record/saved_shape.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace tenon::train {

// "run/steps", "run/batch" and "run/replicas" are whole numbers.

namespace {

constexpr const char* kUnchanged = "Nothing was changed: ";
constexpr const char* kOrAnew = ", or start a new attempt without --resume";
/// Slots whose rates are compared; of longer histories as many, evenly spread.
constexpr std::int64_t kCompared = 4096;
/// Rounding of a schedule's own arithmetic, as a share of the rate.
constexpr double kSameRate = 1e-9;

std::optional<std::int64_t> number(const CheckpointReader& reader, const std::string& name) {
  const std::string* text = reader.meta(name);
  std::int64_t value = 0;
  if (text == nullptr) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  return error == std::errc() && end == text->data() + text->size() ? std::optional(value) : std::nullopt;
}

/// Returns a number of a rank, or of rank 0 where the run that saved had fewer ranks.
std::optional<std::int64_t> core_number(const CheckpointReader& reader, int rank, std::string_view name) {
  const auto own = number(reader, fmt::format("rank{}/core/{}", rank, name));
  return own ? own : number(reader, fmt::format("rank0/core/{}", name));
}

std::string place_of(const CheckpointReader& reader, const std::string& folder) {
  return fmt::format("{}/step-{}", folder, reader.step());
}

/// Checks checkpoints of versions that counted micro-batches without recording their size.
void check_counted_batches(const CheckpointReader& reader, const RunShape& now, const std::string& folder) {
  const std::int64_t micros = core_number(reader, 0, "cursor").value_or(0);
  const std::int64_t read = core_number(reader, 0, "samples").value_or(0);
  const std::int64_t position = micros * now.batch * now.replicas;
  // A roll-back for divergence passes over samples that are in no count.
  const bool skipped = core_number(reader, 0, "divergences").value_or(0) > 0 && position > read;
  if (position == read || skipped) return;
  fail_config(fmt::format(
      "{} counts {} micro-batches per replica and does not say of which size: an earlier version saved it. "
      "With batch = {} and {} replica(s) they would be {} samples, but {} were read, so {} samples would be "
      "{}. {}continue with the batch size and the number of replicas that saved it{}",
      place_of(reader, folder), micros, now.batch, now.replicas, position, read, std::abs(position - read),
      position > read ? "skipped" : "repeated", kUnchanged, kOrAnew));
}

}  // namespace

void record_shape(const RunShape& shape, std::vector<MetaBlock>& meta) {
  meta.push_back({"run/steps", std::to_string(shape.steps)});
  meta.push_back({"run/batch", std::to_string(shape.batch)});
  meta.push_back({"run/replicas", std::to_string(shape.replicas)});
}

std::int64_t saved_position(const CheckpointReader& reader, std::int64_t replica, const RunShape& now) {
  const std::int64_t replicas =
      std::max<std::int64_t>(1, number(reader, "run/replicas").value_or(now.replicas));
  const std::int64_t per_replica = std::max<std::int64_t>(1, reader.world_size() / replicas);
  const auto rank = static_cast<int>(replica * per_replica);
  if (const auto position = core_number(reader, rank, "position")) return *position;
  return core_number(reader, rank, "cursor").value_or(0) * now.batch * now.replicas;
}

void check_position(const CheckpointReader& reader, const RunShape& now, const std::string& folder) {
  if (!core_number(reader, 0, "position")) return check_counted_batches(reader, now, folder);
  const std::int64_t batch = number(reader, "run/batch").value_or(0);
  const std::int64_t replicas = number(reader, "run/replicas").value_or(0);
  if (batch == now.batch && replicas == now.replicas) return;
  // Replicas that sat slots out lag, and their samples are not adjacent.
  std::int64_t first = saved_position(reader, 0, now), last = first, sum = 0;
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    const std::int64_t position = saved_position(reader, replica, now);
    first = std::min(first, position);
    last = std::max(last, position);
    sum += position;
  }
  if (first == last) return;
  fail_config(fmt::format(
      "{} was saved by {} replica(s) with batch = {}, which are at different places of the data: samples {} "
      "to {} of the order. {} replica(s) with batch = {} would repeat {} samples from the first of them, or "
      "skip {} from the last. {}continue with the batch size and the number of replicas that saved it{}",
      place_of(reader, folder), replicas, batch, first, last, now.replicas, now.batch,
      (sum - replicas * first) / replicas, (replicas * last - sum) / replicas, kUnchanged, kOrAnew));
}

std::string check_rates(const CheckpointReader& reader, const RunShape& now, const PlannedRate& rate,
                        const std::string& folder, bool extend) {
  const std::int64_t done = reader.step(), then = number(reader, "run/steps").value_or(now.steps);
  if (then == now.steps || done == 0 || done >= now.steps) return "";
  const std::int64_t planned = done < then ? done + 1 : done;  // the next slot, if the old plan has one
  const std::int64_t stride = std::max<std::int64_t>(1, planned / kCompared);
  const auto same = [](double a, double b) {
    return std::abs(a - b) <= kSameRate * std::max(std::abs(a), std::abs(b));
  };
  std::int64_t slot = planned - 1;  // whose rate the two plans do not agree on
  while (slot >= 0 && same(rate(slot, then), rate(slot, now.steps))) slot -= stride;
  if (slot < 0) return "";
  const double before = rate(done - 1, then), after = rate(done, now.steps);
  const std::string rates =
      same(before, after)
          ? fmt::format("the learning rate of slot {} is {:g} planned for {} slots, and {:g} planned for {}",
                        slot, rate(slot, then), then, rate(slot, now.steps), now.steps)
          : fmt::format(
                "the learning rate was {:g} in slot {}, planned for {} slots, and is {:g} in slot {}, "
                "planned for {}",
                before, done - 1, then, after, done, now.steps);
  if (extend) return fmt::format("run.steps is {} in place of {} (--extend): {}", now.steps, then, rates);
  fail_config(fmt::format(
      "{} was saved by a run of run.steps = {}, and this one has {}. Its schedule depends on that: {}. {}add "
      "--extend to continue with the new plan, set run.steps = {} to keep the old one{}",
      place_of(reader, folder), then, now.steps, rates, kUnchanged, then, kOrAnew));
}

std::pair<double, double> saved_losses(const CheckpointReader& reader, int rank, int ranks) {
  std::pair<double, double> losses{0, 0};
  const auto real = [&](int r, const char* name) {
    const std::string* text = reader.meta(fmt::format("rank{}/lines/{}", r, name));
    return text == nullptr ? 0.0 : std::strtod(text->c_str(), nullptr);
  };
  for (int r = rank; r < reader.world_size(); r += ranks) {
    losses.first += real(r, "loss_sum");
    losses.second += real(r, "loss_count");
  }
  return losses;
}

namespace {

constexpr const char* kAdvice =
    "Nothing was changed: bring the old data back, or start a new attempt without --resume";

std::vector<DataSource> recorded_data(const CheckpointReader& reader) {
  std::vector<DataSource> found;
  while (const std::string* text = reader.meta(fmt::format("data/{}", found.size()))) {
    const std::size_t space = text->find(' ');
    if (space == std::string::npos) break;
    found.push_back({text->substr(space + 1), text->substr(0, space)});
  }
  return found;
}

}  // namespace

void record_data(std::span<const DataSource> sources, std::vector<MetaBlock>& meta) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    meta.push_back({fmt::format("data/{}", i), sources[i].sha256 + " " + sources[i].path});
  }
}

void check_data(const CheckpointReader& reader, std::span<const DataSource> sources,
                const std::string& folder) {
  const std::vector<DataSource> recorded = recorded_data(reader);
  if (recorded.empty()) return;
  const std::string checkpoint = fmt::format("{}/step-{}", folder, reader.step());
  if (recorded.size() != sources.size()) {
    fail_config(fmt::format("{} was trained on other data: on {} files, and this run has {}. {}", checkpoint,
                            recorded.size(), sources.size(), kAdvice));
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const DataSource &then = recorded[i], &now = sources[i];
    if (then.sha256 == now.sha256) continue;
    fail_config(fmt::format("{} was trained on other data: '{}' had SHA-256 {}, and {} has {}. {}",
                            checkpoint, then.path, then.sha256,
                            then.path == now.path ? "now it" : "'" + now.path + "'", now.sha256, kAdvice));
  }
}

}  // namespace tenon::train
