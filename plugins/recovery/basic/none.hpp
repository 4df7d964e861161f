// Recovery `none` (contract recovery/1): saves nothing, so a failure ends the run and --resume has nothing to
// read.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>

namespace tenon::recovery_basic {

class None final : public RecoveryBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "none",
                                       .summary = "no checkpoints; a failure ends the run",
                                       .capabilities = TENON_CAP_DETERMINISTIC};
  explicit None(const Options&) {}
};

}  // namespace tenon::recovery_basic
