// Metrics of a power trace: ramps, dynamic range, spectrum, share of a critical band, and the verdict against
// a specification of a grid. It reads no file and knows no policy.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tenon::power {

/// Mean power of successive intervals of equal length, or of a proxy of it.
struct Trace {
  double rate_hz = 1000;
  std::vector<double> watts;
  bool is_share = false;    ///< values are shares of a resource and no power
  std::string sensor = {};  ///< as the file says: "RAPL package-0, measured"

  double seconds() const { return static_cast<double>(watts.size()) / rate_hz; }
};

double mean_of(std::span<const double> values);

enum class Window { kHann, kRectangular };

/// One-sided spectrum of a trace without its mean: S_k = |X_k|^2, interior bins doubled, so that the sum over
/// all k is N sum (w p)^2. The Hann window is periodic: 0.5 - 0.5 cos(2 pi i / N).
class Spectrum {
 public:
  /// Throws Error(kConfig) for fewer than four samples.
  Spectrum(const Trace& trace, Window window);

  std::size_t bins() const { return power_.size(); }
  double hz(std::size_t bin) const;
  double power(std::size_t bin) const { return power_[bin]; }
  std::size_t samples() const { return samples_; }
  double window_sum() const { return window_sum_; }
  double window_squares() const { return window_squares_; }
  /// Amplitude in watts of the line at a bin: 2 |X_k| / sum w.
  double amplitude(std::size_t bin) const;
  /// Mean square in watts^2 of the bins above 0 Hz.
  double mean_square() const;
  /// The same for low <= f <= high.
  double mean_square(double low_hz, double high_hz) const;
  /// The bin above 0 Hz with the largest amplitude; the first of equals.
  std::size_t peak() const;

 private:
  bool doubled(std::size_t bin) const;

  std::vector<double> power_;
  std::size_t samples_;
  double rate_hz_, window_sum_ = 0, window_squares_ = 0;
};

/// Limits of a grid connection, in shares of the rated power.
struct GridSpec {
  std::string name, note, path;
  double ramp_up = 0, ramp_down = 0;  ///< per second
  double ramp_window_s = 0.1;
  double range = 0;  ///< of highest - lowest power
  double range_window_s = 10;
  double band_low_hz = 0.1, band_high_hz = 20;
  double band_share = 0.2;  ///< of the energy of the unmitigated trace
};

struct Ramp {
  double window_s = 0;
  double up = 0, down = 0;  ///< watts per second; not below 0, NaN where the trace is too short or too coarse
};

/// Largest change of the mean over a window within the length of that window.
Ramp ramp_of(const Trace& trace, double window_s);

/// Largest (maximum - minimum) within a window; a longer window than the trace is the trace.
double range_of_windows(const Trace& trace, double window_s);

/// Rate at which a sampled sensor renews its value: the sampling rate over the shortest run of equal values.
double update_rate(const Trace& trace);

/// One limit and its value.
struct VerdictPart {
  std::string name, unit;
  double value = 0, limit = 0;
  bool passes = false;
};

struct Reading {
  double seconds = 0, rate_hz = 0, update_hz = 0;
  double mean = 0, lowest = 0, highest = 0;  ///< watts
  Ramp ramps[2];                             ///< over 0.1 s and 1 s
  double range = 0, range_window_s = 0;      ///< watts
  double band_low_hz = 0, band_high_hz = 0;  ///< as measured; the upper edge may be truncated
  double band_share = 0;                     ///< of the reference's energy
  double band_rms = 0, band_rms_share = 0;   ///< watts; of the mean
  double peak_hz = 0, peak_amplitude = 0;    ///< watts
  std::vector<std::string> notes;
  std::vector<VerdictPart> verdict;  ///< ramp up, ramp down, range, band share
  bool passes() const;
};

/// `reference`: mean square of the unmitigated trace, of which the band takes a share; its own where the
/// trace is that. `sensor`: values may repeat because a sensor is slower than its samples. Throws
/// Error(kConfig) for a trace shorter than two periods of the band's lower edge, or too coarse for the band.
Reading measure(const Trace& trace, const Spectrum& spectrum, double reference, const GridSpec& spec,
                double rated_watts, bool sensor);

}  // namespace tenon::power
