// Syncs `shadow_ma` (S-MA, FR-MA) and `shadow_bmuf` (S-BMUF, FR-BMUF; Zheng et al. 2020, Chen & Huo 2016).
#pragma once

#include "averaging.hpp"

namespace tenon::sync_shadow {

inline constexpr const char* kMerges[] = {"lerp", "delta", nullptr};

class ShadowMa final : public Averaging {
 public:
  static constexpr OptionSpec kOptions[] = {
      kMode,
      kInterval,
      kAt,
      kRest,
      kPoll,
      kPiece,
      kLock,
      option::real("weight", "0.5")
          .between(0, 1)
          .doc_text("a of w = (1 - a) w + a mean; 0: nothing is exchanged"),
      option::text("merge", "'lerp'")
          .one_of(kMerges)
          .doc_text("lerp: as above, what workers did meanwhile is scaled by 1 - a; delta: w += mean - copy, "
                    "which keeps it (weight is not used)"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "shadow_ma",
      .summary = "averages of all trainers' weights, in the background",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_NONDETERMINISTIC | TENON_CAP_HOGWILD | TENON_CAP_COLLECTIVE};
  explicit ShadowMa(const Options& options)
      : Averaging("shadow_ma", options, options.real("weight")), delta_(options.text("merge") == "delta") {}
  ~ShadowMa() override { stop_background(); }
  void start(Replica& replica) override;

 protected:
  ParameterSet& evaluated() const override { return *evaluated_; }
  void merge(std::size_t index) override;
  /// Publishes the mean of the trainers' weights: no single trainer is the model.
  void publish() override;

 private:
  bool delta_;
  ParameterSet* evaluated_ = nullptr;
};

class ShadowBmuf final : public Averaging {
 public:
  static constexpr OptionSpec kOptions[] = {
      kMode,
      kInterval,
      kAt,
      kRest,
      kPoll,
      kPiece,
      kLock,
      option::real("weight", "0.5")
          .between(0, 1)
          .doc_text("a of w = (1 - a) w + a g; 0: nothing is exchanged"),
      option::real("step", "1").at_least(0).doc_text("z of d = mean - g, D = m D + z d, g += D"),
      option::real("momentum", "0").between(0, 1).doc_text("m, block momentum"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "shadow_bmuf",
      .summary = "block-wise model update filtering, in the background",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_NONDETERMINISTIC | TENON_CAP_HOGWILD | TENON_CAP_COLLECTIVE};
  explicit ShadowBmuf(const Options& options)
      : Averaging("shadow_bmuf", options, options.real("weight")),
        step_(options.real("step")),
        momentum_(options.real("momentum")) {}
  ~ShadowBmuf() override { stop_background(); }
  void start(Replica& replica) override;

 protected:
  ParameterSet& evaluated() const override { return *global_; }
  void merge(std::size_t index) override;
  void publish() override {}

 private:
  double step_, momentum_;
  ParameterSet* global_ = nullptr;
  ParameterSet* update_ = nullptr;  ///< D; null without momentum
};

}  // namespace tenon::sync_shadow
