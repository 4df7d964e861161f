// Target: manifest.json of a simulation. A manifest holds its own hash; the right one replaces a mark,
// otherwise no input would pass it. An accepted manifest reads as the same when it is written again.
#include "input.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/simulation.hpp>

#include <optional>

namespace {

using namespace tenon;

constexpr std::string_view kMark = "HASH", kSays = "expected ";

std::optional<SimulationManifest> parsed(const std::string& text) {
  try {
    return parse_simulation_manifest(text, "input");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
    return std::nullopt;
  }
}

/// The text with the hash that the refusal of the mark expects.
std::string with_hash(std::string text) {
  const std::size_t mark = text.find(kMark);
  if (mark == std::string::npos) return text;
  try {
    parse_simulation_manifest(text, "input");
  } catch (const Error& error) {
    const std::string said = error.what();
    const std::size_t at = said.find(kSays);
    if (at != std::string::npos) text.replace(mark, kMark.size(), said.substr(at + kSays.size(), 64));
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::optional<SimulationManifest> manifest =
      parsed(with_hash(std::string(fuzz::text_of(data, size))));
  if (!manifest) return 0;
  const std::string text = simulation_manifest_text(*manifest);
  const std::optional<SimulationManifest> again = parsed(text);
  fuzz::require(again.has_value(), "what was written cannot be read");
  fuzz::require(simulation_manifest_text(*again) == text, "another text after a round trip");
  fuzz::require(manifest->finished == again->finished && manifest->fields.size() == again->fields.size(),
                "another manifest after a round trip");
  for (const SimulatedField& field : manifest->fields)
    fuzz::require(field.name.find('/') == std::string::npos && field.shape.elements() > 0,
                  "a field that is no file");
  return 0;
}
