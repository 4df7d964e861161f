// Exact shares and their schedule, then the data set.
#include "mixture.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>

namespace tenon::text {

// Exact parsing and one period of a schedule.

namespace {

constexpr std::int64_t kLargestWhole = std::int64_t{1} << 20;
constexpr std::int64_t kLargestTerm = 1'000'000'000;

struct Fraction {
  std::int64_t above = 0, below = 1;
};

std::optional<std::int64_t> digits(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = code == std::errc() && end == text.data() + text.size();
  if (!whole || text[0] == '-' || value > kLargestTerm) return std::nullopt;
  return value;
}

std::optional<Fraction> decimal(std::string_view text) {
  const std::size_t point = text.find('.');
  if (point == std::string_view::npos) {
    const std::optional<std::int64_t> value = digits(text);
    return value ? std::optional(Fraction{*value, 1}) : std::nullopt;
  }
  const std::string_view behind = text.substr(point + 1);
  if (behind.empty() || behind.size() > 9) return std::nullopt;
  const std::optional<std::int64_t> front = point == 0 ? 0 : digits(text.substr(0, point)),
                                    back = digits(behind);
  if (!front || !back) return std::nullopt;
  std::int64_t below = 1;
  for (std::size_t i = 0; i < behind.size(); ++i) below *= 10;
  if (*front > 1) return std::nullopt;
  return Fraction{*front * below + *back, below};
}

std::optional<Fraction> fraction(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return decimal(text);
  const std::optional<std::int64_t> above = digits(text.substr(0, slash)),
                                    below = digits(text.substr(slash + 1));
  if (!above || !below || *below == 0) return std::nullopt;
  return Fraction{*above, *below};
}

}  // namespace

Shares parse_shares(std::span<const std::string> texts, const std::string& where) {
  std::vector<Fraction> fractions;
  Shares shares;
  for (const std::string& text : texts) {
    const std::optional<Fraction> found = fraction(text);
    if (!found || found->above > found->below) {
      fail_config(
          fmt::format("{}: expected a weight from 0 to 1 as a decimal number or a fraction, e.g. \"0.25\" or "
                      "\"1/3\", found \"{}\"",
                      where, text));
    }
    const std::int64_t divisor = std::gcd(found->above, found->below);
    fractions.push_back({found->above / divisor, found->below / divisor});
    const std::int64_t below = fractions.back().below;
    const std::int64_t factor = below / std::gcd(shares.whole, below);
    if (factor > kLargestWhole / shares.whole) {
      fail_config(
          fmt::format("{}: the weights have no common denominator up to 2^20; take fewer digits", where));
    }
    shares.whole *= factor;
  }
  std::int64_t sum = 0;
  for (const Fraction& found : fractions) {
    shares.parts.push_back(found.above * (shares.whole / found.below));
    sum += shares.parts.back();
  }
  if (sum != shares.whole) {
    const std::int64_t divisor = std::gcd(sum, shares.whole);
    fail_config(fmt::format(
        "{}: the weights sum to {}/{}; expected exactly 1 (weights that were rounded can be given "
        "as fractions of their sum, e.g. \"457/1001\")",
        where, sum / divisor, shares.whole / divisor));
  }
  return shares;
}

ShareSchedule::ShareSchedule(const Shares& shares) : shares_(shares) {
  const std::size_t sources = shares.parts.size();
  const std::int64_t whole = shares.whole;
  std::vector<std::int64_t> counts(sources, 0);
  period_.reserve(whole);
  for (std::int64_t s = 1; s <= whole; ++s) {
    std::size_t chosen = sources;
    std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t k = 0; k < sources; ++k) {
      const std::int64_t part = shares.parts[k];
      if (part == 0 || counts[k] * whole / part + 1 > s) continue;
      const std::int64_t deadline = ((counts[k] + 1) * whole + part - 1) / part;
      if (deadline < earliest) {
        earliest = deadline;
        chosen = k;
      }
    }
    if (chosen == sources) fail_plugin("data.mixture: no source may be drawn; the shares do not sum to 1");
    period_.push_back({static_cast<std::int32_t>(chosen), static_cast<std::int32_t>(counts[chosen])});
    ++counts[chosen];
  }
}

ShareSchedule::Draw ShareSchedule::at(std::int64_t draw) const noexcept {
  const Entry& entry = period_[static_cast<std::size_t>(draw % shares_.whole)];
  const std::int64_t periods = draw / shares_.whole;
  return {entry.source, periods * shares_.parts[entry.source] + entry.count};
}

std::int64_t ShareSchedule::count(int source, std::int64_t draws) const noexcept {
  std::int64_t found = draws / shares_.whole * shares_.parts[source];
  for (std::int64_t i = 0; i < draws % shares_.whole; ++i) {
    found += period_[i].source == source ? 1 : 0;
  }
  return found;
}

// Sample g is in the phase p with the last first_p <= g and is its draw g - first_p. That draw selects source
// k, which has c earlier draws in the phase, so the sample is number drawn_p[k] + c of that source. Counts
// restart with each phase, positions within the sources do not.

Mixture::Mixture(const Options& options, Host& host) : WindowDataset("data.mixture", options, host) {
  spec().order = options.choice("order", kOrders);
  read_sources(options);
  read_phases(options);
  const auto caps = options.integers("max_epochs");
  max_epochs_.assign(caps.begin(), caps.end());
  const bool negative = std::any_of(caps.begin(), caps.end(), [](std::int64_t cap) { return cap < 0; });
  if (negative || (!caps.empty() && caps.size() != named_.size())) {
    fail_config(
        fmt::format("data.mixture: max_epochs: expected {} numbers of at least 0, one per source, found {}{}",
                    named_.size(), caps.size(), negative ? " with a negative one" : ""));
  }
}

void Mixture::read_sources(const Options& options) {
  for (const std::string_view entry : options.texts("sources")) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == entry.size()) {
      fail_config(fmt::format("data.mixture: sources: expected \"name=file\", found \"{}\"", entry));
    }
    Named named{std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1))};
    for (const Named& other : named_) {
      if (other.name == named.name) {
        fail_config(fmt::format("data.mixture: sources: '{}' stands there twice", named.name));
      }
    }
    named_.push_back(std::move(named));
  }
  if (named_.empty()) fail_config("data.mixture: sources: expected at least one \"name=file\", found none");
}

void Mixture::read_phases(const Options& options) {
  const auto texts = options.texts("weights");
  const auto ends = options.integers("phase_until");
  const std::size_t sources = named_.size(), phases = ends.size() + 1;
  if (texts.size() != sources * phases) {
    fail_config(
        fmt::format("data.mixture: weights: expected {} of them, for {} sources in {} phases, found {}",
                    sources * phases, sources, phases, texts.size()));
  }
  std::vector<std::int64_t> drawn(sources, 0);
  std::int64_t first = 0;
  for (std::size_t p = 0; p < phases; ++p) {
    const std::vector<std::string> row(texts.begin() + static_cast<std::ptrdiff_t>(p * sources),
                                       texts.begin() + static_cast<std::ptrdiff_t>((p + 1) * sources));
    phases_.push_back(
        {first, ShareSchedule(parse_shares(row, fmt::format("data.mixture: weights of phase {}", p + 1))),
         drawn});
    if (p + 1 == phases) break;
    if (ends[p] <= first) {
      fail_config(
          fmt::format("data.mixture: phase_until: expected ascending numbers above 0, found {} after {}",
                      ends[p], first));
    }
    for (std::size_t k = 0; k < sources; ++k) {
      drawn[k] += phases_[p].schedule.count(static_cast<int>(k), ends[p] - first);
    }
    first = ends[p];
  }
}

void Mixture::open(std::uint64_t seed_order) {
  DataInfo& info = mutable_info();
  std::int64_t vocabulary = 0;
  for (const Named& named : named_) {
    SourceSpec source_spec = spec();
    source_spec.path = named.path;
    // Keyed by name: changing another source, or the size of one, leaves this order unchanged.
    sources_.emplace_back(source_spec, random_key(seed_order, "order:" + named.name), host());
    const Source& source = sources_.back();
    if (source.format() != sources_.front().format()) {
      fail_config(fmt::format("data.mixture: sources '{}' and '{}': expected one format, found {} and {}",
                              named_.front().name, named.name, sources_.front().format(), source.format()));
    }
    for (DataSource& file : source.files()) info.sources.push_back(std::move(file));
    vocabulary = std::max(vocabulary, source.vocabulary());
    val_begin_.push_back(info.val_samples);
    info.train_samples += source.train_samples();
    info.val_samples += source.val_samples();
    info.attributes.push_back({"val_samples." + named.name, source.val_samples()});
  }
  info.attributes.insert(info.attributes.begin(), {"vocabulary", vocabulary});
  finish_info();
}

void Mixture::copy(Split split, std::int64_t sample, const SampleFields& out) const {
  if (split == Split::kVal) {
    const auto after = std::upper_bound(val_begin_.begin(), val_begin_.end(), sample);
    const std::size_t k = after - val_begin_.begin() - 1;
    sources_[k].read_val(sample - val_begin_[k], out);
    return;
  }
  const auto after =
      std::upper_bound(phases_.begin(), phases_.end(), sample,
                       [](std::int64_t place, const Phase& phase) { return place < phase.first; });
  const Phase& phase = *(after - 1);
  const ShareSchedule::Draw draw = phase.schedule.at(sample - phase.first);
  const std::size_t k = draw.source;
  const std::int64_t position = phase.drawn[k] + draw.count;
  if (!max_epochs_.empty() && max_epochs_[k] > 0 &&
      position >= max_epochs_[k] * sources_[k].train_samples()) {
    fail_run(fmt::format(
        "data.mixture: sample {} would begin epoch {} of source '{}', whose max_epochs is {}; train "
        "on fewer samples, lower its weight, or raise max_epochs",
        sample, position / sources_[k].train_samples() + 1, named_[k].name, max_epochs_[k]));
  }
  sources_[k].read_train(position, out);
}

}  // namespace tenon::text
