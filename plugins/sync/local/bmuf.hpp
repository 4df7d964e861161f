// Sync `bmuf` (Chen & Huo 2016): blockwise model-update filtering. Replicas train alone for a block; the mean
// of their updates, filtered by a momentum over blocks, moves the global model, from which all continue.
#pragma once

#include "rounds.hpp"

#include <tenon/plugin.hpp>

#include <optional>

namespace tenon::sync_local {

class Bmuf final : public Centered {
 public:
  static constexpr OptionSpec kOptions[] = {
      interval_option("50", "slots of a block"),
      kWarmup,
      kDrift,
      option::real("momentum", nullptr)
          .between(0, 0.999999)
          .doc_text("m of the filter D = m D + z G over blocks; absent: 1 - 1/K for K replicas, the "
                    "published rule"),
      option::real("step", "1").between(1e-9, 1e3).doc_text("z, the rate of a block"),
      option::boolean("nesterov", "true")
          .doc_text("replicas go on from where the momentum will take the model: W + m D instead of W"),
      kLocalState,
  };
  static constexpr ComponentInfo kInfo{
      .id = "bmuf",
      .summary = "blocks of local updates, their mean filtered by a momentum",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit Bmuf(const Options& options);

  void start(Replica& replica) override;

 protected:
  void meet() override;

 private:
  std::optional<double> given_momentum_;
  double momentum_ = 0, step_;
  bool nesterov_;
  ParameterSet* update_ = nullptr;
};

}  // namespace tenon::sync_local
