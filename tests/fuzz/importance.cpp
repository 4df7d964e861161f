// Target: files of importance. Scores that are accepted are finite, and written again they are read as the
// same.
#include "importance_file.hpp"
#include "input.hpp"

#include <tenon/error.hpp>

#include <cmath>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  try {
    const minitron::Importance found = minitron::read_importance(fuzz::text_of(data, size), "input");
    for (const double score : found.width) fuzz::require(std::isfinite(score), "a score that is not finite");
    for (const auto& entry : found.depth)
      fuzz::require(entry.second.numbers.size() == entry.second.scores.size(), "layers without a score");
    minitron::Importance widths;
    widths.width = found.width;
    const minitron::Importance again =
        minitron::read_importance(minitron::importance_bytes(widths, {}, {}), "input");
    fuzz::require(again.width == found.width, "another width");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
