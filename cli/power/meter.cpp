// Metrics by their formulas; see meter.hpp. FFTW transforms in place.
#include "power/meter.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fftw3.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>

namespace tenon::power {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kShortRamp = 0.1, kLongRamp = 1;
constexpr double kPeriodsNeeded = 2, kPeriodsAdvised = 4;
/// Frequencies that are equal but for rounding count as inside of a band.
constexpr double kEdge = 1e-9;

struct FreeFftw {
  void operator()(double* memory) const { fftw_free(memory); }
};

std::size_t samples_of(double seconds, double rate_hz) {
  const double samples = std::round(seconds * rate_hz);
  return samples >= 1 ? static_cast<std::size_t>(samples) : 0;
}

}  // namespace

double mean_of(std::span<const double> values) {
  // A mean of blocks: the error does not grow with the length.
  constexpr std::size_t kBlock = 1024;
  double sum = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    double part = 0;
    for (std::size_t i = begin; i < std::min(values.size(), begin + kBlock); ++i) part += values[i];
    sum += part;
  }
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

Spectrum::Spectrum(const Trace& trace, Window window)
    : samples_(trace.watts.size()), rate_hz_(trace.rate_hz) {
  if (samples_ < 4) fail_config(fmt::format("a spectrum needs at least 4 samples, found {}", samples_));
  const std::size_t n = samples_, half = n / 2 + 1;
  const std::unique_ptr<double, FreeFftw> memory(
      static_cast<double*>(fftw_malloc(2 * half * sizeof(double))));
  if (memory == nullptr) throw std::bad_alloc();
  double* const x = memory.get();
  auto* const bins = reinterpret_cast<fftw_complex*>(x);
  const fftw_plan plan = fftw_plan_dft_r2c_1d(static_cast<int>(n), x, bins, FFTW_ESTIMATE);
  if (plan == nullptr) fail_run(fmt::format("FFTW makes no plan for {} samples", n));
  const double mean = mean_of(trace.watts);
  const double turn = 2 * std::numbers::pi / static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double w = window == Window::kRectangular ? 1 : 0.5 - 0.5 * std::cos(turn * static_cast<double>(i));
    window_sum_ += w;
    window_squares_ += w * w;
    x[i] = w * (trace.watts[i] - mean);
  }
  fftw_execute(plan);
  fftw_destroy_plan(plan);
  power_.resize(half);
  for (std::size_t k = 0; k < half; ++k) {
    const double square = bins[k][0] * bins[k][0] + bins[k][1] * bins[k][1];
    power_[k] = doubled(k) ? 2 * square : square;
  }
}

bool Spectrum::doubled(std::size_t bin) const {
  return bin > 0 && 2 * bin != samples_;
}

double Spectrum::hz(std::size_t bin) const {
  return rate_hz_ * static_cast<double>(bin) / static_cast<double>(samples_);
}

double Spectrum::amplitude(std::size_t bin) const {
  return 2 * std::sqrt(power_[bin] / (doubled(bin) ? 2 : 1)) / window_sum_;
}

double Spectrum::mean_square() const {
  double sum = 0;
  for (std::size_t k = 1; k < power_.size(); ++k) sum += power_[k];
  return sum / (static_cast<double>(samples_) * window_squares_);
}

double Spectrum::mean_square(double low_hz, double high_hz) const {
  double sum = 0;
  for (std::size_t k = 1; k < power_.size(); ++k) {
    const double f = hz(k);
    if (f >= low_hz * (1 - kEdge) && f <= high_hz * (1 + kEdge)) sum += power_[k];
  }
  return sum / (static_cast<double>(samples_) * window_squares_);
}

std::size_t Spectrum::peak() const {
  std::size_t best = 1;
  for (std::size_t k = 2; k < power_.size(); ++k)
    if (amplitude(k) > amplitude(best)) best = k;
  return best;
}

Ramp ramp_of(const Trace& trace, double window_s) {
  const std::size_t m = samples_of(window_s, trace.rate_hz), n = trace.watts.size();
  Ramp ramp{window_s, kNoNumber, kNoNumber};
  if (m < 1 || n < 2 * m) return ramp;
  // Differences of sums over neighbouring windows, carried along without a growing prefix sum.
  const double mean = mean_of(trace.watts);
  const auto at = [&](std::size_t i) { return trace.watts[i] - mean; };
  double difference = 0;
  for (std::size_t i = 0; i < m; ++i) difference += at(m + i) - at(i);
  double most = difference, least = difference;
  for (std::size_t begin = 0; begin + 2 * m < n; ++begin) {
    difference += (at(begin + 2 * m) - at(begin + m)) - (at(begin + m) - at(begin));
    most = std::max(most, difference);
    least = std::min(least, difference);
  }
  const double scale = 1 / (static_cast<double>(m) * (static_cast<double>(m) / trace.rate_hz));
  ramp.up = std::max(0.0, most * scale);
  ramp.down = std::max(0.0, -least * scale);
  return ramp;
}

double range_of_windows(const Trace& trace, double window_s) {
  const std::size_t n = trace.watts.size();
  const std::size_t m = std::min(n, std::max<std::size_t>(1, samples_of(window_s, trace.rate_hz)));
  // Candidates for the extremes of the window that ends here, as rings of indices.
  std::vector<std::size_t> high(m + 1), low(m + 1);
  std::size_t high_begin = 0, high_end = 0, low_begin = 0, low_end = 0;
  const std::span<const double> p = trace.watts;
  const std::size_t ring = m + 1;
  double range = 0;
  for (std::size_t i = 0; i < n; ++i) {
    while (high_end > high_begin && p[high[(high_end - 1) % ring]] <= p[i]) --high_end;
    while (low_end > low_begin && p[low[(low_end - 1) % ring]] >= p[i]) --low_end;
    high[high_end++ % ring] = i;
    low[low_end++ % ring] = i;
    if (high[high_begin % ring] + m <= i) ++high_begin;
    if (low[low_begin % ring] + m <= i) ++low_begin;
    range = std::max(range, p[high[high_begin % ring]] - p[low[low_begin % ring]]);
  }
  return range;
}

double update_rate(const Trace& trace) {
  const std::size_t n = trace.watts.size();
  std::size_t shortest = n, run = 1, changes = 0;
  for (std::size_t i = 1; i < n; ++i) {
    if (trace.watts[i] == trace.watts[i - 1]) {
      ++run;
      continue;
    }
    // The first run began before the trace.
    if (changes++ > 0) shortest = std::min(shortest, run);
    run = 1;
  }
  return changes < 2 ? trace.rate_hz : trace.rate_hz / static_cast<double>(shortest);
}

bool Reading::passes() const {
  return std::all_of(verdict.begin(), verdict.end(), [](const VerdictPart& part) { return part.passes; });
}

Reading measure(const Trace& trace, const Spectrum& spectrum, double reference, const GridSpec& spec,
                double rated_watts, bool sensor) {
  Reading reading;
  reading.seconds = trace.seconds();
  reading.rate_hz = trace.rate_hz;
  reading.update_hz = sensor ? update_rate(trace) : trace.rate_hz;
  reading.mean = mean_of(trace.watts);
  const auto [lowest, highest] = std::minmax_element(trace.watts.begin(), trace.watts.end());
  reading.lowest = *lowest;
  reading.highest = *highest;
  reading.ramps[0] = ramp_of(trace, kShortRamp);
  reading.ramps[1] = ramp_of(trace, kLongRamp);
  reading.range_window_s = spec.range_window_s;
  reading.range = range_of_windows(trace, spec.range_window_s);
  if (reading.seconds < spec.range_window_s)
    reading.notes.push_back(
        fmt::format("the trace lasts {:.4g} s, less than the window of {:.4g} s: the "
                    "range is that of the whole trace",
                    reading.seconds, spec.range_window_s));
  const double periods = reading.seconds * spec.band_low_hz;
  if (periods * (1 + kEdge) < kPeriodsNeeded)
    fail_config(
        fmt::format("the trace lasts {:.4g} s; the band's lower edge of {:.4g} Hz needs at least two "
                    "periods, {:.4g} s",
                    reading.seconds, spec.band_low_hz, kPeriodsNeeded / spec.band_low_hz));
  if (periods < kPeriodsAdvised)
    reading.notes.push_back(
        fmt::format("{:.3g} periods of {:.4g} Hz: the window is two bins wide, and four "
                    "periods ({:.4g} s) keep it inside the band",
                    periods, spec.band_low_hz, kPeriodsAdvised / spec.band_low_hz));
  reading.band_low_hz = spec.band_low_hz;
  reading.band_high_hz = spec.band_high_hz;
  if (reading.update_hz <= 2 * spec.band_high_hz) {
    reading.band_high_hz = reading.update_hz / 2;
    if (reading.band_high_hz <= spec.band_low_hz)
      fail_config(
          fmt::format("the trace has {:.4g} values a second; the band from {:.4g} Hz needs more than "
                      "{:.4g}",
                      reading.update_hz, spec.band_low_hz, 2 * spec.band_low_hz));
    reading.notes.push_back(
        fmt::format("{:.4g} values a second: the band is measured from {:.4g} to {:.4g} "
                    "Hz and not to {:.4g}",
                    reading.update_hz, spec.band_low_hz, reading.band_high_hz, spec.band_high_hz));
  }
  const double band = spectrum.mean_square(reading.band_low_hz, reading.band_high_hz);
  reading.band_share = reference > 0 ? band / reference : 0;
  reading.band_rms = std::sqrt(band);
  reading.band_rms_share = reading.mean > 0 ? reading.band_rms / reading.mean : 0;
  const std::size_t peak = spectrum.peak();
  reading.peak_hz = spectrum.hz(peak);
  reading.peak_amplitude = spectrum.amplitude(peak);

  const Ramp ramp = ramp_of(trace, spec.ramp_window_s);
  const auto part = [&](const char* name, const char* unit, double value, double limit) {
    reading.verdict.push_back({name, unit, value, limit, value <= limit});
  };
  part("ramp up", "rated/s", ramp.up / rated_watts, spec.ramp_up);
  part("ramp down", "rated/s", ramp.down / rated_watts, spec.ramp_down);
  part("range", "rated", reading.range / rated_watts, spec.range);
  part("band share", "", reading.band_share, spec.band_share);
  return reading;
}

}  // namespace tenon::power
