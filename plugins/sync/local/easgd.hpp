// Sync `easgd` (Zhang, Choromanska & LeCun 2015), synchronous and symmetric: a synchronisation round pulls
// every replica and the centre towards each other, x_i -= a (x_i - c) and c += a sum (x_i - c), both from the
// previous values. sum x_i + c is invariant.
#pragma once

#include "rounds.hpp"

#include <tenon/plugin.hpp>

#include <optional>
#include <vector>

namespace tenon::sync_local {

class Easgd final : public Centered {
 public:
  static constexpr OptionSpec kOptions[] = {
      interval_option("10", "slots between two exchanges with the centre"),
      kWarmup,
      kDrift,
      option::real("elastic", nullptr)
          .between(0, 1)
          .doc_text("a, the share of the way that replica and centre go; absent: 0.9 / K for K replicas"),
  };
  static constexpr ComponentInfo kInfo{.id = "easgd",
                                       .summary = "replicas that train alone, drawn to a common centre",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit Easgd(const Options& options);
  ~Easgd() override;

  /// Throws Error(kConfig) if (K + 1) a is 2 or more: the exchange itself would diverge.
  void start(Replica& replica) override;
  ParameterSet& evaluation_parameters() override;

 protected:
  void meet() override;

 private:
  /// False with one replica: its own centre would only lag.
  bool exchanges() const { return replica().replicas() > 1 && elastic_ > 0; }

  std::optional<double> given_;
  double elastic_ = 0;
  Device* device_ = nullptr;
  std::vector<TensorView> exchanged_;  ///< per arena of arenas()
};

}  // namespace tenon::sync_local
