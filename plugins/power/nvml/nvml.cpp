#include "nvml.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

namespace tenon::nvml {
namespace {

/// The entries of CUDA_VISIBLE_DEVICES up to the first that names no GPU, where CUDA stops, too.
std::vector<Place> visible_places(std::string_view text) {
  std::vector<Place> places;
  while (!text.empty()) {
    std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    Place place;
    const char* const end = entry.data() + entry.size();
    const auto [stop, problem] = std::from_chars(entry.data(), end, place.index);
    const bool number = problem == std::errc() && stop == end && place.index >= 0;
    if (!number && !entry.starts_with("GPU-") && !entry.starts_with("MIG-")) break;
    if (!number) place = {0, std::string(entry)};
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace

Place place_of(int rank, const char* visible) {
  if (visible == nullptr) return {rank, ""};
  const std::vector<Place> places = visible_places(visible);
  if (rank >= static_cast<int>(places.size()))
    fail_run(fmt::format("CUDA_VISIBLE_DEVICES is '{}', with {} GPU{}; there is none for number {}", visible,
                         places.size(), places.size() == 1 ? "" : "s", rank));
  if (places[rank].uuid.starts_with("MIG-"))
    fail_run(fmt::format("{} of CUDA_VISIBLE_DEVICES is a part of a GPU, whose power is not measured apart",
                         places[rank].uuid));
  return places[rank];
}

Nvml::Nvml(const Options& options)
    : path_(options.text("library")), index_(static_cast<int>(options.integer("index"))) {}

PowerSourceInfo Nvml::open(int rank) {
  library_.reset();
  const Place place = place_of(index_ >= 0 ? index_ : rank, std::getenv("CUDA_VISIBLE_DEVICES"));
  library_ = std::make_unique<Library>(path_);
  const Api& api = library_->api();
  gpu_name_ = place.uuid.empty() ? fmt::format("GPU {}", place.index) : place.uuid;
  library_->require(place.uuid.empty() ? api.handle_by_index(place.index, &gpu_)
                                       : api.handle_by_uuid(place.uuid.c_str(), &gpu_),
                    "NVML has no " + gpu_name_);
  char name[96] = "";  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
  if (api.name(gpu_, name, sizeof name) == kSuccess) gpu_name_ += fmt::format(" ({})", name);
  watts();
  PowerSourceInfo info;
  info.sensor = "NVML instant power, " + gpu_name_;
  unsigned limit_mw = 0;
  if (api.enforced_power_limit(gpu_, &limit_mw) == kSuccess) info.rated = 1e-3 * limit_mw;
  counts_energy_ = api.total_energy(gpu_, &begun_mj_) == kSuccess;
  return info;
}

double Nvml::watts() const {
  FieldValue value;
  value.field = kPowerInstant;
  value.scope = kGpuScope;
  library_->require(library_->api().field_values(gpu_, 1, &value), gpu_name_ + ": its power cannot be read");
  if (value.result == kNotSupported)
    fail_run(
        gpu_name_ +
        ": driver or GPU do not report the power of this instant, and the other query is a mean over one "
        "second, in which the swings of a step are lost; a newer driver may report it");
  library_->require(value.result, gpu_name_ + ": its power cannot be read");
  switch (value.type) {
    case kDouble:
      return 1e-3 * value.as_double;
    case kUnsigned:
      return 1e-3 * value.as_unsigned;
    case kUnsignedLong:
      return 1e-3 * static_cast<double>(value.as_unsigned_long);
    case kUnsignedLongLong:
      return 1e-3 * static_cast<double>(value.as_unsigned_long_long);
    default:
      fail_run(fmt::format("{}: its power has NVML's type {}; expected an unsigned number of milliwatts",
                           gpu_name_, value.type));
  }
}

double Nvml::read(double) {
  return watts();
}

double Nvml::joules() {
  if (!counts_energy_) return std::numeric_limits<double>::quiet_NaN();
  unsigned long long now_mj = 0;
  library_->require(library_->api().total_energy(gpu_, &now_mj), gpu_name_ + ": its energy cannot be read");
  if (now_mj < begun_mj_)
    fail_run(fmt::format("{}: its energy went back from {} to {} mJ; the driver was loaded again", gpu_name_,
                         begun_mj_, now_mj));
  return 1e-3 * static_cast<double>(now_mj - begun_mj_);
}

}  // namespace tenon::nvml

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.power_nvml",
                               .version = "0.1.0",
                               .summary = "instantaneous watts of NVIDIA GPUs"},
             tenon::nvml::Nvml)
