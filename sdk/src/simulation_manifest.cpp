// Properties of a manifest that do not need its text.
#include <tenon/sdk/simulation.hpp>

#include <fmt/format.h>

TENON_ABI_BEGIN
namespace {

std::string described(std::span<const SimulatedField> fields) {
  std::string text;
  for (const SimulatedField& field : fields)
    text +=
        fmt::format("{} {} {} {}\n", field.name, dtype_name(field.dtype), field.shape.text(), field.target);
  return text;
}

}  // namespace

bool SimulationManifest::complete() const {
  return static_cast<std::int64_t>(finished.size() + failed.size()) >= samples;
}

std::string SimulationManifest::config_hash() const {
  const std::string text = fmt::format("{}\n{} {}\nseed {}\n{}\nfields\n{}shared\n{}", simulator, plugin,
                                       plugin_version, seed, config, described(fields), described(shared));
  return sha256_of(std::as_bytes(std::span(text)));
}

TENON_ABI_END
