// Counts of the formats chosen for each operand of a site, in tensors that the core saves and restores; and
// the shares computed from them.
#pragma once

#include "operand.hpp"

#include <tenon/device.hpp>
#include <tenon/site_products.hpp>

#include <array>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::mor {

using Use = SiteOperand;
inline constexpr int kUses = kSiteOperands;

/// Counts of one site, in the device's memory; training calls only.
class Decisions {
 public:
  explicit Decisions(SiteHost& host);
  void add(Use use, const Verdict& verdict);
  /// Returns the tensors (elements in block modes) of a use by choice.
  std::array<std::int64_t, kChoices> units(Use use) const;
  /// Returns the mean relative error of E4M3 over the calls; 0 before the first.
  double mean_error(Use use) const;

 private:
  Device& device_;
  TensorView units_;                    ///< i64 [kUses, kChoices]
  TensorView errors_;                   ///< f64 [kUses, 2]: sum over calls, calls
  HostStage units_here_, errors_here_;  ///< used by add()
};

/// All sites of a policy, under the names of their layers.
class Ledger {
 public:
  /// remove() removes `decisions` again.
  void add(std::string name, const Decisions* decisions);
  void remove(const Decisions* decisions);
  /// Reports mor/LAYER/GEMM.OPERAND: share in 8 bits or fewer; mor/LAYER/GEMM.OPERAND/error: mean error;
  /// mor/share, mor/share/x, .../w, .../dy: over all sites.
  void metrics(const std::function<void(std::string_view, double)>& sink) const;

 private:
  struct Entry {
    std::string name;
    const Decisions* decisions;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace tenon::mor
