// Sample g is in the phase p with the last first_p <= g and is its draw g - first_p. That draw selects source
// k, which has c earlier draws in the phase, so the sample is number drawn_p[k] + c of that source. Counts
// restart with each phase, positions within the sources do not.
#include "mixture.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::text {

Mixture::Mixture(const Options& options)
    : WindowDataset("data.mixture", options.integer("context"), options.integer("batch")),
      common_{.path = {},
              .val_path = {},
              .format = std::string(options.text("format")),
              .context = context(),
              .at_least = 1,
              .vocabulary = options.integer("vocabulary"),
              .val_fraction = options.real("val_fraction"),
              .order = options.choice("order", kOrders)} {
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
    SourceSpec spec = common_;
    spec.path = resolve_data_path(named.path);
    // Keyed by name: changing another source, or the size of one, leaves this order unchanged.
    sources_.emplace_back(spec, random_key(seed_order, "order:" + named.name));
    const Source& source = sources_.back();
    if (source.format() != sources_.front().format()) {
      fail_config(fmt::format("data.mixture: sources '{}' and '{}': expected one format, found {} and {}",
                              named_.front().name, named.name, sources_.front().format(), source.format()));
    }
    for (DataSource& file : source.files()) info.sources.push_back(std::move(file));
    vocabulary = std::max(vocabulary, source.vocabulary());
    val_begin_.push_back(info.val_samples);
    info.train_samples += source.train_windows();
    info.val_samples += source.val_windows();
    info.attributes.push_back({"val_samples." + named.name, source.val_windows()});
  }
  info.attributes.insert(info.attributes.begin(), {"vocabulary", vocabulary});
}

void Mixture::copy(Split split, std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const {
  if (split == Split::kVal) {
    const auto after = std::upper_bound(val_begin_.begin(), val_begin_.end(), sample);
    const auto k = static_cast<std::size_t>(after - val_begin_.begin() - 1);
    sources_[k].read_val(sample - val_begin_[k], tokens, targets);
    return;
  }
  const auto after =
      std::upper_bound(phases_.begin(), phases_.end(), sample,
                       [](std::int64_t place, const Phase& phase) { return place < phase.first; });
  const Phase& phase = *(after - 1);
  const ShareSchedule::Draw draw = phase.schedule.at(sample - phase.first);
  const auto k = static_cast<std::size_t>(draw.source);
  const std::int64_t position = phase.drawn[k] + draw.count;
  if (!max_epochs_.empty() && max_epochs_[k] > 0 &&
      position >= max_epochs_[k] * sources_[k].train_windows()) {
    fail_run(fmt::format(
        "data.mixture: sample {} would begin epoch {} of source '{}', whose max_epochs is {}; train "
        "on fewer samples, lower its weight, or raise max_epochs",
        sample, position / sources_[k].train_windows() + 1, named_[k].name, max_epochs_[k]));
  }
  sources_[k].read_train(position, tokens, targets);
}

}  // namespace tenon::text
