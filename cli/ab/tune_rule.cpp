// Reading, checks and points of tune_rule.hpp.
#include "ab/tune_rule.hpp"

#include <tenon/error.hpp>

#include <Random123/philox.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

namespace tenon::ab {
namespace {

constexpr std::size_t kTrialsPerKey = 9;
constexpr std::uint32_t kScramble = 0x7e404u;  // the key of all permutations of digits
constexpr std::uint32_t kPrimes[] = {2, 3, 5, 7, 11, 13};
constexpr std::size_t kMostKeys = std::size(kPrimes);

constexpr OptionSpec kTuneOptions[] = {
    option::integer("trials", nullptr)
        .between(2, 10'000)
        .doc_text("settings that every arm tries; by default 9 per key, or all of a list"),
    option::integers("seeds", nullptr).mandatory().doc_text("seeds of every try; none of the verdict's"),
    option::text("arms", "\"each\"")
        .one_of(kTuneArms)
        .doc_text("shared: the baseline alone is tuned, and its choice holds for all arms"),
    option::text("on_failure", "\"stop\"")
        .one_of(kTuneFailures)
        .doc_text("drop: an arm whose runs all fail leaves the study, and the others go on"),
};

constexpr OptionSpec kKeyOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("key of the run's configuration: optimizer.lr"),
    option::real("from", nullptr).doc_text("least setting"),
    option::real("to", nullptr).doc_text("greatest setting"),
    option::text("scale", "\"log\"").one_of(kTuneScales).doc_text("how settings are spaced"),
    option::boolean("whole", "false").doc_text("settings are whole numbers"),
    option::text("hard_ends", "\"none\"")
        .one_of(kHardEnds)
        .doc_text("ends beyond which no setting makes sense; a winner there is no reason to refuse"),
    option::reals("values", "[]").doc_text("numbers to try, instead of from and to"),
    option::texts("choices", "[]")
        .doc_text("settings without order, as on the command line, instead of from and to"),
    option::texts("only", "[]").doc_text("arms that have the key; all if empty"),
};

std::vector<std::string> words(const Options& options, std::string_view name) {
  const auto texts = options.texts(name);
  return {texts.begin(), texts.end()};
}

TunedKey read_key(const Value& table, std::size_t index) {
  OptionRequest request{
      .table = table, .owner = fmt::format("tune.key[{}]", index), .specs = option_list(kKeyOptions)};
  const Resolution resolved = resolve_options(request);
  const Options& options = *resolved.options;
  TunedKey key;
  key.name = options.text("name");
  key.scale = options.choice("scale", kTuneScales);
  key.whole = options.boolean("whole");
  key.hard = options.choice("hard_ends", kHardEnds);
  const auto values = options.reals("values");
  key.values.assign(values.begin(), values.end());
  std::sort(key.values.begin(), key.values.end());
  key.choices = words(options, "choices");
  key.only = words(options, "only");
  const bool both = options.has("from") && options.has("to");
  const int ways = (options.has("from") || options.has("to") ? 1 : 0) + (key.values.empty() ? 0 : 1) +
                   (key.choices.empty() ? 0 : 1);
  if (ways != 1 || (key.is_range() && !both)) {
    fail_config(
        fmt::format("{}: tune: key '{}' needs a range (from and to), or values, or choices, and one of these "
                    "alone; e.g. from = 1e-4, to = 1e-1",
                    table.origin.text(), key.name));
  }
  if (both) {
    key.from = options.real("from");
    key.to = options.real("to");
  }
  return key;
}

/// Settings that the keys allow together; 0 if a range allows any number of them.
std::size_t combinations(const std::vector<TunedKey>& keys) {
  std::size_t out = 1;
  for (const TunedKey& key : keys) out *= key.listed();
  return out;
}

std::size_t usual_trials(const std::vector<TunedKey>& keys) {
  const std::size_t listed = combinations(keys);
  return listed > 0 ? listed : kTrialsPerKey * keys.size();
}

/// Where the setting of a position is again, so that equal settings are equal positions.
double snapped(const TunedKey& key, double position) {
  const std::size_t n = key.listed();
  if (n > 0) {
    const double index = std::min(std::floor(position * static_cast<double>(n)), static_cast<double>(n - 1));
    return n == 1 ? 0 : index / static_cast<double>(n - 1);
  }
  if (!key.whole || key.to == key.from) return position;
  const double value = std::stod(key.setting(position));
  return key.scale == TuneScale::kLog ? std::log(value / key.from) / std::log(key.to / key.from)
                                      : (value - key.from) / (key.to - key.from);
}

std::vector<std::vector<double>> every_combination(const TuneRule& rule) {
  std::vector<std::vector<double>> out;
  for (std::size_t i = 0; i < rule.trials; ++i) {
    std::vector<double> point;
    std::size_t rest = i;
    for (const TunedKey& key : rule.keys) {
      const std::size_t n = key.listed();
      point.push_back(n == 1 ? 0 : static_cast<double>(rest % n) / static_cast<double>(n - 1));
      rest /= n;
    }
    out.push_back(std::move(point));
  }
  return out;
}

std::vector<std::vector<double>> even_grid(const TuneRule& rule) {
  std::vector<std::vector<double>> out;
  for (std::size_t i = 0; i < rule.trials; ++i) {
    const double position = static_cast<double>(i) / static_cast<double>(rule.trials - 1);
    const TunedKey& key = rule.keys.front();
    out.push_back({key.is_range() ? snapped(key, position) : position});
  }
  return out;
}

/// The permutation of the digits of one place of one base (Fisher-Yates).
std::vector<std::uint32_t> permuted_digits(std::uint32_t base, std::uint32_t place) {
  std::vector<std::uint32_t> out(base);
  std::iota(out.begin(), out.end(), 0u);
  r123::Philox4x32 philox;
  for (std::uint32_t i = base - 1; i > 0; --i) {
    const auto bits = philox({{i, place, base, 0}}, {{kScramble, kScramble}});
    std::swap(out[i], out[bits[0] % (i + 1)]);
  }
  return out;
}

double scrambled_radical_inverse(std::uint32_t base, std::uint64_t index) {
  double out = 0, weight = 1.0 / base;
  for (std::uint32_t place = 0; weight > 1e-9; ++place, weight /= base, index /= base)
    out += weight * permuted_digits(base, place)[index % base];
  return std::min(out, 1.0);
}

std::vector<std::vector<double>> halton_points(const TuneRule& rule) {
  std::vector<std::vector<double>> out;
  std::set<std::vector<double>> seen;
  for (std::uint64_t i = 0; out.size() < rule.trials && i < 100 * rule.trials; ++i) {
    std::vector<double> point;
    for (std::size_t k = 0; k < rule.keys.size(); ++k)
      point.push_back(snapped(rule.keys[k], scrambled_radical_inverse(kPrimes[k], i)));
    if (seen.insert(point).second) out.push_back(std::move(point));
  }
  return out;
}

void check_key(const TunedKey& key, std::vector<std::string>& out) {
  if (key.is_range()) {
    if (!(key.from < key.to) || !std::isfinite(key.from) || !std::isfinite(key.to))
      out.push_back(fmt::format("tune: key '{}' goes from {} to {}; expected from below to", key.name,
                                key.from, key.to));
    if (key.scale == TuneScale::kLog && !(key.from > 0)) {
      out.push_back(
          fmt::format("tune: key '{}' goes from {} on a logarithmic scale; begin above 0, or write scale = "
                      "\"linear\"",
                      key.name, key.from));
    }
    return;
  }
  if (key.listed() < 2)
    out.push_back(
        fmt::format("tune: key '{}' has one setting to try; a choice needs at least two", key.name));
  const std::set<double> numbers(key.values.begin(), key.values.end());
  const std::set<std::string> texts(key.choices.begin(), key.choices.end());
  if (numbers.size() + texts.size() < key.listed())
    out.push_back(fmt::format("tune: key '{}' lists a setting twice", key.name));
}

}  // namespace

bool TunedKey::belongs_to(const std::string& arm) const {
  return only.empty() || std::find(only.begin(), only.end(), arm) != only.end();
}

std::string TunedKey::setting(double position) const {
  const std::size_t n = listed();
  if (n > 0) {
    const auto index = static_cast<std::size_t>(std::llround(position * static_cast<double>(n - 1)));
    return choices.empty() ? fmt::format("{}", values[index]) : choices[index];
  }
  const double value =
      scale == TuneScale::kLog ? from * std::pow(to / from, position) : from + (to - from) * position;
  // Four digits, so that a range which was widened by whole steps has its old settings again.
  return whole ? fmt::format("{}", std::llround(value)) : fmt::format("{:.4g}", value);
}

std::vector<std::vector<double>> tune_points(const TuneRule& rule) {
  std::vector<std::vector<double>> out = rule.trials == combinations(rule.keys) ? every_combination(rule)
                                         : rule.keys.size() == 1                ? even_grid(rule)
                                                                                : halton_points(rule);
  const std::set<std::vector<double>> different(out.begin(), out.end());
  if (different.size() < rule.trials) {
    fail_config(
        fmt::format("tune: {} trials, but the keys have only {} settings; lower trials, or widen the ranges",
                    rule.trials, different.size()));
  }
  return out;
}

std::vector<std::string> problems_of(const TuneRule& rule) {
  std::vector<std::string> out;
  if (rule.keys.empty())
    out.push_back("tune: no key to tune; add [[tune.key]] tables, e.g. name = \"optimizer.lr\"");
  if (rule.keys.size() > kMostKeys)
    out.push_back(fmt::format("tune: {} keys; at most {}", rule.keys.size(), kMostKeys));
  std::set<std::string> names;
  for (const TunedKey& key : rule.keys) {
    check_key(key, out);
    if (!names.insert(key.name).second) out.push_back(fmt::format("tune: key '{}' is there twice", key.name));
  }
  if (rule.trials < 2)
    out.push_back(fmt::format("tune: trials is {}; a choice needs at least two settings", rule.trials));
  const bool lists = !rule.keys.empty() && combinations(rule.keys) > 0;
  if (rule.keys.size() == 1 && lists && rule.trials != rule.keys.front().listed()) {
    out.push_back(fmt::format("tune: trials is {}, but key '{}' lists {} settings; leave trials out",
                              rule.trials, rule.keys.front().name, rule.keys.front().listed()));
  }
  if (std::set<std::int64_t>(rule.seeds.begin(), rule.seeds.end()).size() < rule.seeds.size())
    out.push_back("tune: seeds repeats a seed");
  if (rule.seeds.size() < 2) {
    out.push_back(fmt::format(
        "tune: {} seed; the spread between at least two tells how far a best setting can be trusted",
        rule.seeds.size()));
  }
  if (std::any_of(rule.seeds.begin(), rule.seeds.end(), [](std::int64_t s) { return s < 0; }))
    out.push_back("tune: seeds contains a negative number; seeds count from 0");
  if (rule.budget && !(rule.budget->amount > 0))
    out.push_back("tune: budget is not positive; leave it out to take that of the experiment");
  return out;
}

TuneRule read_tune(const Value& table) {
  if (!table.is_table())
    fail_config(
        fmt::format("{}: expected the table [tune], found {}", table.origin.text(), table.description()));
  OptionRequest request{
      .table = table, .owner = "tune", .specs = option_list(kTuneOptions), .other_keys = {"key", "budget"}};
  const Resolution resolved = resolve_options(request);
  const Options& options = *resolved.options;
  TuneRule rule;
  const auto seeds = options.integers("seeds");
  rule.seeds.assign(seeds.begin(), seeds.end());
  rule.arms = options.choice("arms", kTuneArms);
  rule.failure = options.choice("on_failure", kTuneFailures);
  if (const Value* keys = table.find("key")) {
    if (!keys->is_array())
      fail_config(fmt::format("{}: keys to tune are written as [[tune.key]] tables", keys->origin.text()));
    for (std::size_t i = 0; i < keys->array().size(); ++i) rule.keys.push_back(read_key(keys->array()[i], i));
  }
  rule.trials =
      options.has("trials") ? static_cast<std::size_t>(options.integer("trials")) : usual_trials(rule.keys);
  return rule;
}

std::vector<config::TableSpecs> tune_tables() {
  return {{"tune", kTuneOptions}, {"tune.key", kKeyOptions, true}};
}

}  // namespace tenon::ab
