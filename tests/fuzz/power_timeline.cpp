// Target: trace.rank*.json as `tenon power` reads it. Accepted phases follow one another without gaps.
#include "input.hpp"
#include "power/phase_log.hpp"

#include <tenon/error.hpp>

#include <cmath>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  try {
    const power::PhaseLog log = power::parse_timeline(fuzz::text_of(data, size), "input");
    fuzz::require(!log.phases.empty(), "no phase");
    double at = log.begin_s();
    for (const power::Phase& phase : log.phases) {
      fuzz::require(phase.begin_s == at && phase.end_s > phase.begin_s, "a gap or an empty phase");
      fuzz::require(std::isfinite(phase.end_s), "a time that is no number");
      at = phase.end_s;
    }
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
