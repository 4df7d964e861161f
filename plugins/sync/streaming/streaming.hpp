// Sync `streaming_diloco` (Douillard et al. 2025, arXiv 2501.18512): DiLoCo that synchronises its weights in
// fragments, each at its own time and overlapped with training. A fragment's pseudo-gradient is sent in one
// slot; its mean moves the anchor `delay` slots later, when the replicas' weights are pulled towards it.
#pragma once

#include "fragments.hpp"
#include "wire.hpp"

#include <tenon/plugin.hpp>
#include <tenon/sdk/outer_update.hpp>
#include <tenon/state.hpp>
#include <tenon/sync.hpp>

#include <string_view>
#include <vector>

namespace tenon::sync_streaming {

class StreamingDiloco final : public SyncBase {
 public:
  static constexpr const char* kFirst[] = {"full", "short", nullptr};
  static constexpr auto kWires = option::choice<Format>({{"parameter", Format::kParameter},
                                                         {"bf16", Format::kBf16},
                                                         {"e4m3", Format::kE4m3},
                                                         {"fp4", Format::kFp4}});
  static constexpr OptionSpec kOptions[] = {
      option::integer("interval", "100")
          .at_least(1)
          .in_unit("slots")
          .doc_text("H: slots from one meeting of a fragment to its next; the paper: 30 and 100"),
      option::integer("fragments", "4")
          .between(1, 1 << 20)
          .doc_text("P: number of fragments; tensors are dealt to them in turn. Not read with patterns"),
      option::texts("patterns", "[]")
          .doc_text(
              "one fragment per pattern of parameter names, in this order; a name goes to the first that "
              "describes it"),
      option::integer("delay", "1")
          .at_least(0)
          .in_unit("slots")
          .doc_text("tau: slots that a transfer may take; less than interval / fragments"),
      option::real("alpha", "0")
          .between(0, 1)
          .doc_text("share of its own weights that a replica keeps at a meeting; the paper: 0 and 0.5"),
      option::text("first_sync", "\"full\"")
          .one_of(kFirst)
          .doc_text(
              "first meeting of a fragment: after a full interval and its offset, as in the paper, or at its "
              "offset"),
      kOuterRule,
      outer_lr_option("0.4"),
      kOuterMomentum,
      kOuterBetas,
      kOuterEps,
      option::text("communication", "\"parameter\"")
          .one_of(kWires)
          .doc_text("how ways back travel: summed in the parameters' dtype, or each replica's own in bf16, "
                    "MXFP8 or "
                    "NVFP4 to all others, summed by the receiver in f32"),
  };
  static constexpr ComponentInfo kInfo{.id = "streaming_diloco",
                                       .summary = "DiLoCo with fragments synchronised in the background",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit StreamingDiloco(const Options& options);

  void start(Replica& replica) override;
  void after_step(const Slot& slot, const StepOutcome& outcome) override;
  /// Waits for the transfer in flight; the state tells whether it was merged.
  void quiesce() override { wire_.land(); }
  ParameterSet& evaluation_parameters() override { return *anchor_; }
  void state(StateVisitor& visitor) override;

 private:
  /// Returns the fragment to send after slot `done` - 1, or -1. Depends only on the number of slots, so that
  /// all replicas send the same fragments in the same order, also after a restart.
  int leaving(std::int64_t done) const;
  void send(std::size_t fragment);
  void merge(std::size_t fragment);
  void settle_buffers();

  std::int64_t interval_, count_, delay_;
  double alpha_;
  bool full_first_;
  std::vector<std::string_view> patterns_;
  OuterUpdate outer_;
  Wire wire_;
  Elementwise* elementwise_ = nullptr;
  ParameterSet* anchor_ = nullptr;
  std::vector<Fragment> fragments_;
  std::vector<std::int64_t> offsets_;  ///< t_p of the paper
  std::vector<std::int64_t> rounds_;   ///< rounds so far
  std::int64_t flying_ = -1;           ///< fragment that is sent and not merged
  std::int64_t due_ = 0;               ///< number of slots after which it is merged
};

}  // namespace tenon::sync_streaming
