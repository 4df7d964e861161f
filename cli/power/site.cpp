// Loads, chains and sums; see site.hpp.
#include "power/site.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace tenon::power {
namespace {

constexpr const char* kIdleName = "idle";
/// A chain that makes a job this many times as long does not let it end.
constexpr std::size_t kLongestStretch = 100;

/// The factor of a first-order response over one interval.
double approach(double seconds, double time_constant) {
  return time_constant > 0 ? -std::expm1(-seconds / time_constant) : 1;
}

}  // namespace

const Level& Levels::of(const std::string& phase) const {
  std::vector<std::string> known;
  for (const Level& level : levels) {
    if (level.phase == phase) return level;
    known.push_back(level.phase);
  }
  fail_config(fmt::format("{}: there is no level of phase '{}' (known: {}); add a [[level]]", path, phase,
                          fmt::join(known, ", ")));
}

Load load_of(const PhaseLog& log, const Levels& levels, double rate_hz, double begin_s, double end_s) {
  const double dt = 1 / rate_hz;
  const auto n = static_cast<std::size_t>(std::max(1.0, std::round((end_s - begin_s) * rate_hz)));
  Load load{rate_hz, std::vector<double>(n), std::vector<double>(n), 0, 0};
  const Level& idle = levels.of(kIdleName);
  std::vector<const Level*> level_of;
  for (const Phase& phase : log.phases) level_of.push_back(&levels.of(phase.name));
  const auto sample_of = [&](double seconds) {
    return static_cast<std::size_t>(
        std::clamp(std::round((seconds - begin_s) * rate_hz), 0.0, static_cast<double>(n)));
  };
  load.job_begin = sample_of(log.begin_s());
  load.job_end = sample_of(log.end_s());

  double response = idle.share;
  std::size_t at = 0;
  constexpr double kRounding = 1e-9;  // of an interval: boundaries that are meant to be at a sample are
  for (std::size_t i = 0; i < n; ++i) {
    const double from = begin_s + static_cast<double>(i) * dt, to = from + dt, middle = from + dt / 2;
    while (at < log.phases.size() && log.phases[at].end_s <= from + kRounding * dt) ++at;
    double share = 0, activity = 0, covered = 0;
    const Level* now = &idle;
    for (std::size_t p = at; p < log.phases.size() && log.phases[p].begin_s < to - kRounding * dt; ++p) {
      const Phase& phase = log.phases[p];
      const double overlap = std::min(to, phase.end_s) - std::max(from, phase.begin_s);
      if (phase.begin_s <= middle && middle < phase.end_s) now = level_of[p];
      if (overlap >= dt * (1 - kRounding)) {
        share = level_of[p]->share, activity = level_of[p]->activity, covered = dt;
        break;
      }
      share += overlap / dt * level_of[p]->share;
      activity += overlap / dt * level_of[p]->activity;
      covered += overlap;
    }
    if (covered < dt * (1 - kRounding)) {
      share += (1 - covered / dt) * idle.share;
      activity += (1 - covered / dt) * idle.activity;
    }
    const double part = approach(dt, share > response ? now->rise_s : now->fall_s);
    response = part == 1 ? share : response + part * (share - response);
    load.watts[i] = response * levels.rated_watts;
    load.activity[i] = activity;
  }
  return load;
}

ChainResult play(const Load& load, std::span<const ChainLink> chain, const PowerSetup& setup) {
  ChainResult result;
  result.load = load;
  if (chain.empty() || load.size() == 0) return result;
  const double dt = setup.seconds_per_sample;
  const std::size_t n = load.size();
  for (const ChainLink& link : chain) {
    link.policy->start(setup);
    result.steps.push_back({link.type, {}, {}, {}, 0, 0, 0, 0, 0, {}});
    result.steps.back().in.reserve(n);
    result.steps.back().out.reserve(n);
  }
  result.load.watts.clear();
  result.load.activity.clear();
  std::size_t job_end = load.job_end;
  bool over = false;
  double delay = 0;  // in intervals; stays 0 to the bit while nothing is throttled
  for (std::size_t i = 0;; ++i) {
    if (i > kLongestStretch * n)
      fail_config(fmt::format(
          "power.policy: after {:.4g} s the policies have let through {:.4g} s of work of "
          "{:.4g} s; raise ceilings and ramps",
          static_cast<double>(i) * dt, (static_cast<double>(i) - delay) * dt, static_cast<double>(n) * dt));
    const double position = static_cast<double>(i) - delay;
    if (position >= static_cast<double>(n) - 0.5) break;
    const auto whole = static_cast<std::size_t>(std::max(0.0, position));
    const double part = position - static_cast<double>(whole);
    PowerSample sample{load.watts[whole], load.activity[whole], whole >= load.job_end};
    if (part > 0 && whole + 1 < n) {
      sample.watts += part * (load.watts[whole + 1] - sample.watts);
      sample.activity += part * (load.activity[whole + 1] - sample.activity);
    }
    if (sample.ended && !over) job_end = i;
    over = over || sample.ended;
    double work = 1;
    for (std::size_t c = 0; c < chain.size(); ++c) {
      Played& step = result.steps[c];
      const PowerOutput output = chain[c].policy->step(sample);
      step.in.push_back(sample.watts);
      step.out.push_back(output.watts);
      if (output.charge_j != 0 || !step.charge_j.empty()) {
        step.charge_j.resize(i, 0.0);
        step.charge_j.push_back(output.charge_j);
      }
      step.burnt_j += output.burnt * dt;
      step.withheld_j += output.withheld * dt;
      (output.stored > 0 ? step.charged_j : step.discharged_j) += std::abs(output.stored) * dt;
      step.violations += output.violation ? 1 : 0;
      work *= std::clamp(output.work, 0.0, 1.0);
      sample.watts = output.watts;
    }
    result.load.watts.push_back(sample.watts);
    result.load.activity.push_back(sample.activity);
    // Nobody waits for the idle time around a job.
    if (whole >= load.job_begin && !sample.ended) delay += 1 - work;
  }
  result.load.job_end = over ? job_end : result.load.size();
  result.delay_s = delay * dt;
  for (std::size_t c = 0; c < chain.size(); ++c) {
    chain[c].policy->account(
        [&](std::string_view name, double value) { result.steps[c].account.emplace_back(name, value); });
  }
  return result;
}

std::vector<std::int64_t> worker_offsets(const Workers& workers, double rate_hz) {
  const RandomKey key = random_key(workers.seed, "power.jitter");
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(workers.count), 0);
  if (workers.jitter_s == 0) return offsets;
  for (std::size_t w = 0; w < offsets.size(); ++w)
    offsets[w] = std::llround(workers.jitter_s * rate_hz * random_normal(key, w, 0));
  return offsets;
}

Load sum_of(std::span<const Load> loads, std::span<const std::int64_t> offsets, double constant_watts) {
  std::size_t n = 0;
  for (const Load& load : loads) n = std::max(n, load.size());
  Load sum{loads[0].rate_hz, std::vector<double>(n, constant_watts), std::vector<double>(n, 0.0), 0, n};
  // Workers of one load and offset are one addition.
  std::map<std::pair<std::size_t, std::int64_t>, int> alike;
  for (std::size_t w = 0; w < offsets.size(); ++w) ++alike[{w % loads.size(), offsets[w]}];
  const double share = 1 / static_cast<double>(offsets.size());
  for (const auto& [which, count] : alike) {
    const Load& load = loads[which.first];
    const std::int64_t offset = which.second;
    const auto last = static_cast<std::int64_t>(load.size()) - 1;
    const double times = count, weight = count * share;
    const auto length = static_cast<std::int64_t>(n);
    const std::int64_t first = std::clamp<std::int64_t>(offset, 0, length);
    const std::int64_t end = std::clamp<std::int64_t>(offset + last + 1, first, length);
    const auto hold = [&](std::int64_t begin, std::int64_t stop, std::size_t source) {
      for (std::int64_t i = begin; i < stop; ++i) {
        sum.watts[i] += times * load.watts[source];
        sum.activity[i] += weight * load.activity[source];
      }
    };
    hold(0, first, 0);
    for (std::int64_t i = first, from = first - offset; i < end; ++i, ++from) {
      sum.watts[i] += times * load.watts[from];
      sum.activity[i] += weight * load.activity[from];
    }
    hold(end, length, last);
    const auto moved = [&](std::size_t sample) {
      return static_cast<std::size_t>(
          std::clamp<std::int64_t>(static_cast<std::int64_t>(sample) + offset, 0, length));
    };
    sum.job_begin = std::max(sum.job_begin, moved(load.job_begin));
    sum.job_end = std::min(sum.job_end, moved(load.job_end));
  }
  return sum;
}

}  // namespace tenon::power
