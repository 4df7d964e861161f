// Sync `none` (contract sync/1): replicas never communicate. One replica trains plainly; several train
// independently from equal initial weights on different samples, the lower bound for every strategy that
// saves communication.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/sync.hpp>

namespace tenon::sync_basic {

class None final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "none",
                                       .summary = "replicas never communicate",
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_HOGWILD};
  explicit None(const Options&) {}
};

}  // namespace tenon::sync_basic
