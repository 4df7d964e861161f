// Properties P1 and P6 of the specification of power, metrics against NumPy (tests/reference/power.py),
// limits of rates and lengths, and the time of a long trace.
#include "power/meter.hpp"

#include "base/elapsed.hpp"
#include "test_paths.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <numbers>

namespace tenon::power {
namespace meter_test {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr double kPi = std::numbers::pi;

/// Whole periods of hi for `on` samples and lo for the others.
Trace square(std::size_t period, std::size_t on, std::size_t periods, double rate_hz, double high,
             double low) {
  Trace trace{rate_hz, {}};
  for (std::size_t i = 0; i < period * periods; ++i) trace.watts.push_back(i % period < on ? high : low);
  return trace;
}

GridSpec open_spec() {
  GridSpec spec;
  spec.ramp_up = spec.ramp_down = spec.range = spec.band_share = 1e9;
  return spec;
}

Reading read(const Trace& trace, const GridSpec& spec, double rated, bool sensor = false) {
  const Spectrum spectrum(trace, Window::kHann);
  return measure(trace, spectrum, spectrum.mean_square(), spec, rated, sensor);
}

TEST(Meter, P1_SpectrumOfASquareWave) {
  struct Case {
    std::size_t period, on, periods;
  };
  for (const Case& c : {Case{20, 16, 12}, Case{25, 10, 7}, Case{64, 9, 5}, Case{50, 41, 33}}) {
    const double high = 1200, low = 450, d = static_cast<double>(c.on) / static_cast<double>(c.period);
    const Trace trace = square(c.period, c.on, c.periods, 50, high, low);
    EXPECT_NEAR(mean_of(trace.watts), low + d * (high - low), 1e-9 * (high - low));
    for (const Window window : {Window::kRectangular, Window::kHann}) {
      const Spectrum spectrum(trace, window);
      for (std::size_t k = 1; 2 * k < c.period; ++k) {
        const double n = static_cast<double>(c.period);
        const double expected =
            2 * (high - low) / n *
            std::abs(std::sin(kPi * static_cast<double>(k) * d) / std::sin(kPi * static_cast<double>(k) / n));
        const std::size_t bin = k * c.periods;
        EXPECT_NEAR(spectrum.amplitude(bin), expected, 1e-9 * (high - low))
            << "harmonic " << k << " of " << c.period;
        EXPECT_NEAR(spectrum.hz(bin), 50.0 * static_cast<double>(k) / n, 1e-12);
      }
      // Nothing between the harmonics, beyond the window's main lobe.
      EXPECT_NEAR(spectrum.amplitude(c.periods / 2), 0, 1e-9 * (high - low));
      EXPECT_NEAR(spectrum.hz(spectrum.peak()), 50.0 / static_cast<double>(c.period), 1e-12);
    }
  }
}

TEST(Meter, P6_ParsevalForBothWindowsAndLengths) {
  for (const std::size_t n : {std::size_t{1000}, std::size_t{1001}}) {
    Trace trace{100, {}};
    for (std::size_t i = 0; i < n; ++i)
      trace.watts.push_back(500 + 100 * std::sin(0.07 * static_cast<double>(i)) +
                            static_cast<double>(i * 37 % 101));
    const double mean = mean_of(trace.watts);
    for (const Window window : {Window::kRectangular, Window::kHann}) {
      const Spectrum spectrum(trace, window);
      double sum = 0, squares = 0, windows = 0;
      for (std::size_t k = 0; k < spectrum.bins(); ++k) sum += spectrum.power(k);
      for (std::size_t i = 0; i < n; ++i) {
        const double w =
            window == Window::kRectangular
                ? 1
                : 0.5 - 0.5 * std::cos(2 * kPi * static_cast<double>(i) / static_cast<double>(n));
        squares += std::pow(w * (trace.watts[i] - mean), 2);
        windows += w * w;
      }
      EXPECT_NEAR(sum / (static_cast<double>(n) * squares), 1, 1e-12);
      EXPECT_NEAR(spectrum.window_squares(), windows, 1e-9);
    }
  }
}

TEST(Meter, NumbersOfNumPy) {
  std::ifstream in(TENON_SOURCE_DIR "/tests/reference/power.json");
  const json record = json::parse(in);
  const Trace trace{record["rate_hz"], record["watts"].get<std::vector<double>>()};
  const auto close = [](double got, double want, const std::string& what) {
    EXPECT_NEAR(got, want, 1e-9 * std::max(1.0, std::abs(want))) << what;
  };
  for (const json& expected : record["ramps"]) {
    const Ramp ramp = ramp_of(trace, expected["window_s"]);
    close(ramp.up, expected["up"], "ramp up");
    close(ramp.down, expected["down"], "ramp down");
  }
  close(range_of_windows(trace, 2), record["range_2s"], "range");
  for (const auto& [window, name] :
       {std::pair{Window::kHann, "hann"}, std::pair{Window::kRectangular, "rectangular"}}) {
    const json& expected = record[name];
    const Spectrum spectrum(trace, window);
    close(spectrum.mean_square(), expected["mean_square"], name);
    close(spectrum.mean_square(0.2, 12), expected["band_mean_square"], name);
    close(spectrum.hz(spectrum.peak()), expected["peak_hz"], name);
    close(spectrum.amplitude(spectrum.peak()), expected["peak_amplitude"], name);
    const double largest = 1e8;  // of the bins: roundings of NumPy's plain sums are relative to it
    for (std::size_t k = 1; k < 60; ++k)
      EXPECT_NEAR(spectrum.power(k), expected["power"][k], 1e-11 * largest) << name << k;
  }
}

TEST(Meter, RampsOfALineAndOfAStep) {
  Trace line{100, {}};
  for (int i = 0; i < 500; ++i) line.watts.push_back(1000 + 3.0 * i);  // 300 W/s
  EXPECT_NEAR(ramp_of(line, 0.1).up, 300, 1e-9);
  EXPECT_NEAR(ramp_of(line, 1).up, 300, 1e-9);
  EXPECT_EQ(ramp_of(line, 1).down, 0);
  const Trace step = square(200, 100, 2, 100, 700, 200);
  EXPECT_NEAR(ramp_of(step, 0.1).up, 5000, 1e-9);  // 500 W in 0.1 s
  EXPECT_NEAR(ramp_of(step, 1).down, 500, 1e-9);
  EXPECT_TRUE(std::isnan(ramp_of({1, {1, 2, 3, 4}}, 0.1).up)) << "a window without a sample";
}

TEST(Meter, RangeCountsWithinItsWindow) {
  Trace drift{10, {}};
  for (int i = 0; i < 1000; ++i) drift.watts.push_back(i);
  EXPECT_NEAR(range_of_windows(drift, 10), 99, 1e-12);
  EXPECT_NEAR(range_of_windows(drift, 1000), 999, 1e-12);
}

TEST(Meter, BandShareIsOfTheUnmitigatedTrace) {
  // Two lines, 1 Hz of 300 W and 30 Hz of 400 W; the mitigated trace has a tenth of the first one.
  Trace before{200, {}}, after{200, {}};
  for (int i = 0; i < 200 * 60; ++i) {
    const double t = i / 200.0, slow = 300 * std::sin(2 * kPi * t), fast = 400 * std::sin(2 * kPi * 30 * t);
    before.watts.push_back(1000 + slow + fast);
    after.watts.push_back(1000 + 0.1 * slow);
  }
  const Spectrum first(before, Window::kHann), second(after, Window::kHann);
  const Reading raw = measure(before, first, first.mean_square(), open_spec(), 1000, false);
  const Reading smooth = measure(after, second, first.mean_square(), open_spec(), 1000, false);
  EXPECT_NEAR(raw.band_share, 0.36, 1e-9);
  EXPECT_NEAR(smooth.band_share, 0.0036, 1e-9);
  EXPECT_NEAR(raw.band_rms, 300 / std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(smooth.band_rms_share, 30 / std::sqrt(2.0) / 1000, 1e-9);
  EXPECT_NEAR(raw.peak_hz, 30, 1e-12);
  EXPECT_NEAR(raw.peak_amplitude, 400, 1e-9);
}

TEST(Meter, VerdictHasAllFourParts) {
  const Trace trace = square(100, 80, 40, 100, 1000, 400);
  GridSpec spec = open_spec();
  spec.range = 0.5;
  spec.band_share = 0.2;
  const Reading reading = read(trace, spec, 1000);
  ASSERT_EQ(reading.verdict.size(), 4u);
  EXPECT_TRUE(reading.verdict[0].passes);
  EXPECT_TRUE(reading.verdict[1].passes);
  EXPECT_FALSE(reading.verdict[2].passes);
  EXPECT_NEAR(reading.verdict[2].value, 0.6, 1e-12);
  EXPECT_FALSE(reading.verdict[3].passes);
  EXPECT_FALSE(reading.passes());
}

TEST(Meter, ARateTooLowForTheBandTruncatesItAndSaysSo) {
  const Trace trace = square(20, 15, 60, 20, 700, 300);  // 60 s at 20 Hz
  const Reading reading = read(trace, open_spec(), 700);
  EXPECT_NEAR(reading.band_high_hz, 10, 1e-12);
  EXPECT_THAT(reading.notes, ::testing::Contains(HasSubstr("measured from 0.1 to 10 Hz and not to 20")));
  EXPECT_THROW(read({0.2, std::vector<double>(30, 1.0)}, open_spec(), 1), Error);
}

TEST(Meter, ASensorThatIsSlowerThanItsSamples) {
  Trace trace{100, {}};  // a new value every tenth of a second
  for (int i = 0; i < 6000; ++i) trace.watts.push_back(500 + 100 * std::sin(i / 10 * 0.7));
  EXPECT_NEAR(update_rate(trace), 10, 1e-12);
  EXPECT_NEAR(read(trace, open_spec(), 600, true).band_high_hz, 5, 1e-12);
  EXPECT_NEAR(read(trace, open_spec(), 600, false).band_high_hz, 20, 1e-12);
}

TEST(Meter, ATraceTooShortForTheBandIsRefused) {
  const Trace trace = square(100, 50, 10, 100, 700, 300);  // 10 s
  try {
    read(trace, open_spec(), 700);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "the trace lasts 10 s; the band's lower edge of 0.1 Hz needs at least two periods, 20 s");
  }
}

TEST(Meter, TenMillionSamplesInUnderFiveSeconds) {
  Trace trace{1000, std::vector<double>(10000000)};
  for (std::size_t i = 0; i < trace.watts.size(); ++i)
    trace.watts[i] = i % 2000 < 1640 ? 1e6 + static_cast<double>(i % 7) : 3e5;
  const base::Steady::time_point begun = base::Steady::now();
  const Reading reading = read(trace, open_spec(), 1e6, true);
  const double seconds = base::seconds_since(begun);
  RecordProperty("seconds", std::to_string(seconds));
  std::printf("10^7 samples: %.2f s\n", seconds);
  EXPECT_NEAR(reading.peak_hz, 0.5, 1e-9);
  EXPECT_LT(seconds, 5);
}

}  // namespace meter_test
}  // namespace tenon::power
