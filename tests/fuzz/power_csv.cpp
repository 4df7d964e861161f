// Target: a trace of power as `tenon power meter` reads it. An accepted trace has finite, non-negative
// samples at a finite rate, and the meter takes it.
#include "input.hpp"
#include "power/phase_log.hpp"

#include <tenon/error.hpp>

#include <cmath>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  try {
    const power::Trace trace = power::parse_power_csv(fuzz::text_of(data, size), "input");
    fuzz::require(trace.watts.size() >= 4, "too few samples");
    fuzz::require(std::isfinite(trace.rate_hz) && trace.rate_hz > 0, "no rate");
    for (const double watts : trace.watts) fuzz::require(std::isfinite(watts) && watts >= 0, "no power");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
