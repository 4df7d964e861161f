// Conversion of options to settings, and the decision about an update.
#include "fp16.hpp"

#include "site.hpp"

#include <fmt/format.h>

namespace tenon::fp16 {
namespace {

ScalerSettings settings_of(const Options& options) {
  ScalerSettings settings;
  settings.patience = options.integer("patience");
  settings.min_scale = options.real("min_scale");
  switch (options.choice("loss_scale", Fp16::kLossScales)) {
    case Fp16::LossScale::kStatic:
      settings.kind = ScalerKind::kStatic;
      settings.init = options.real("scale");
      return settings;
    case Fp16::LossScale::kNone:
      settings.kind = ScalerKind::kNone;
      settings.init = 1.0;
      return settings;
    case Fp16::LossScale::kDynamic:
      settings.kind = options.choice("scaler", Fp16::kScalers);
  }
  const bool megatron = settings.kind == ScalerKind::kMegatron;
  settings.init = options.has("init") ? options.real("init") : megatron ? 0x1p32 : 65536.0;
  settings.interval = options.has("interval") ? options.integer("interval") : megatron ? 1000 : 2000;
  settings.growth = options.real("growth");
  settings.backoff = options.real("backoff");
  settings.hysteresis = megatron ? options.integer("hysteresis") : 1;
  if (settings.init < settings.min_scale) {
    fail_config(
        fmt::format("precision.fp16: init = {} lies below min_scale = {}; the scale begins at init and "
                    "never falls below min_scale",
                    settings.init, settings.min_scale));
  }
  return settings;
}

}  // namespace

Fp16::Fp16(const Options& options, Host& host)
    : host_(host),
      gradients_(options.text("gradients") == "fp16"),
      scales_(options.choice("loss_scale", kLossScales) != LossScale::kNone),
      scaler_(settings_of(options)) {}

std::unique_ptr<LinearSite> Fp16::bind(const SiteInfo& site, SiteHost& host) {
  return std::make_unique<HalfSite>(site, host, gradients_);
}

bool Fp16::after_backward(const BackwardStats& stats) {
  const double before = scaler_.scale();
  scaler_.update(stats.found_non_finite);
  if (scaler_.scale() != before) {
    host_.log(LogLevel::kInfo, fmt::format("loss scale {} -> {}{}", before, scaler_.scale(),
                                           stats.found_non_finite ? ": gradients overflowed" : ""));
  }
  return !stats.found_non_finite;
}

void* Fp16::query(std::string_view interface_id) {
  return interface_id == LossScaler::kId ? static_cast<LossScaler*>(this) : nullptr;
}

}  // namespace tenon::fp16
