// Sync `easgd` (Zhang, Choromanska & LeCun 2015), synchronous and symmetric: a synchronisation round pulls
// every replica and the centre towards each other, x_i -= a (x_i - c) and c += a sum (x_i - c), both from the
// previous values. sum x_i + c is invariant.
#pragma once

#include "rounds.hpp"

#include <tenon/error.hpp>
#include <tenon/plugin.hpp>

#include <fmt/format.h>

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
          .doc_text("a, the fraction of their difference by which replica and centre move; absent: 0.9 / K "
                    "for K replicas"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "easgd",
      .summary = "elastic averaging: replicas train alone and are pulled towards a common centre",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "replicas that no spring pulls train alone",
       .options = "interval = 1000000000\nelastic = 0.0",
       .other = "type = 'none'"},
      {.why = "a warm-up that does not end is data-parallel training",
       .options = "warmup = 1000000000",
       .other = "type = 'ddp'"},
  };
  explicit Easgd(const Options& options);
  ~Easgd() override;

  /// Throws Error(kConfig) if (K + 1) a is 2 or more: the exchange itself would diverge.
  void start(Replica& replica) override;
  ParameterSet& evaluation_parameters() override;

 protected:
  void sync_round() override;

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
  /// False with one replica: its own centre would only lag.
  bool exchanges() const { return replica().replicas() > 1 && elastic_ > 0; }

  std::optional<double> given_;
  double elastic_ = 0;
  Device* device_ = nullptr;
  std::vector<TensorView> exchanged_;  ///< per arena of arenas()
};

inline Easgd::Easgd(const Options& options) : Centered("easgd", "center", options) {
  if (options.has("elastic")) given_ = options.real("elastic");
}

inline Easgd::~Easgd() {
  for (const TensorView& view : exchanged_) device_->release(view.data, view.bytes());
}

inline void Easgd::start(Replica& replica) {
  const int replicas = replica.replicas();
  elastic_ = given_.value_or(0.9 / replicas);
  if (replicas > 1 && !((replicas + 1) * elastic_ < 2)) {
    fail_config(
        fmt::format("sync easgd: elastic = {:.6g} with {} replicas: exchanges diverge from (K + 1) * elastic "
                    "= 2 on, and this is {:.4g}; "
                    "take less than {:.4g}",
                    elastic_, replicas, (replicas + 1) * elastic_, 2.0 / (replicas + 1)));
  }
  Centered::start(replica);
  device_ = &replica.device();
  for (const int arena : arenas()) {
    TensorView view = replica.live().arena(arena);
    view.data = device_->allocate(view.bytes());
    exchanged_.push_back(view);
  }
}

inline ParameterSet& Easgd::evaluation_parameters() {
  return exchanges() ? Centered::evaluation_parameters() : replica().live();
}

inline void Easgd::sync_round() {
  if (!exchanges()) return;
  for (std::size_t i = 0; i < arenas().size(); ++i) {
    const TensorView x = replica().live().arena(arenas()[i]), center = this->center().arena(arenas()[i]);
    const TensorView moved = exchanged_[i];
    elementwise().subtract(x, center, moved);
    elementwise().scale(moved, elastic_);
    elementwise().axpy(-1.0, moved, x);
    sum(moved);
    elementwise().axpy(1.0, moved, center);
  }
  center().touch(-1);
  replica().live().touch(-1);
}

}  // namespace tenon::sync_local
