// Sync `streaming_diloco` (Douillard et al. 2025, arXiv 2501.18512): DiLoCo that synchronises its weights in
// fragments, each at its own time and overlapped with training. A fragment's pseudo-gradient is sent in one
// slot; its mean moves the anchor `delay` slots later, when the replicas' weights are pulled towards it.
// At most one fragment is in flight: offsets are at least interval / fragments apart, and the delay is
// shorter.
#include "fragments.hpp"
#include "wire.hpp"

#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/outer_update.hpp>
#include <tenon/state.hpp>
#include <tenon/sync.hpp>
#include <tenon/sync_extra.hpp>

#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace tenon::sync_streaming {

class StreamingDiloco final : public SyncBase, private IdentitiesOf<StreamingDiloco> {
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
          .doc_text("H: slots between sync rounds of a fragment; the paper: 30 and 100"),
      option::integer("fragments", "4")
          .between(1, 1 << 20)
          .doc_text("P: number of fragments; tensors are assigned to them in turn. Ignored with patterns"),
      option::texts("patterns", "[]")
          .doc_text("one fragment per pattern of parameter names, in this order; a name goes to the first "
                    "pattern that matches"),
      option::integer("delay", "1")
          .at_least(0)
          .in_unit("slots")
          .doc_text("tau: slots that a transfer may take; less than interval / fragments"),
      option::real("alpha", "0")
          .between(0, 1)
          .doc_text("share of its own weights that a replica keeps at a sync round; the paper: 0 and 0.5"),
      option::text("first_sync", "\"full\"")
          .one_of(kFirst)
          .doc_text("first sync round of a fragment: after a full interval and its offset, as in the paper, "
                    "or at its offset"),
      kOuterRule,
      outer_lr_option("0.4"),
      kOuterMomentum,
      kOuterBetas,
      kOuterEps,
      option::text("communication", "\"parameter\"")
          .one_of(kWires)
          .doc_text("how pseudo-gradients are sent: summed in the parameters' dtype, or each replica's in "
                    "bf16, MXFP8 or NVFP4 to all others, which sum them in f32"),
  };
  static constexpr ComponentInfo kInfo{.id = "streaming_diloco",
                                       .summary = "DiLoCo with fragments synchronised in the background",
                                       .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "one fragment that arrives at once is a round of DiLoCo",
       .options = "interval = 3\nfragments = 1\ndelay = 0",
       .other = "type = 'diloco'\ninterval = 3\nouter_lr = 0.4"},
  };
  explicit StreamingDiloco(const Options& options);

  void start(Replica& replica) override;
  std::int64_t first_round() const override;
  void after_step(const Slot& slot, const StepOutcome& outcome) override;
  /// Waits for the transfer in flight; the state tells whether it was merged.
  void quiesce() override { wire_.land(); }
  ParameterSet& evaluation_parameters() override { return *anchor_; }
  void state(StateVisitor& visitor) override;
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : SyncBase::query(id);
  }

 private:
  /// Returns the fragment to send after slot `done` - 1, or -1. Depends only on the number of slots, so that
  /// all replicas send the same fragments in the same order, also after a restart.
  int leaving(std::int64_t done) const;
  /// Returns t_p of the paper: the slots by which the rounds of a fragment come after those of the first.
  std::int64_t offset(std::int64_t fragment) const;
  void send(std::size_t fragment);
  void merge(std::size_t fragment);
  void sync_anchor_buffers();

  std::int64_t interval_, count_, delay_;
  double alpha_;
  bool full_first_;
  std::vector<std::string_view> patterns_;
  OuterUpdate outer_;
  Wire wire_;
  Elementwise* elementwise_ = nullptr;
  ParameterSet* anchor_ = nullptr;
  std::vector<Fragment> fragments_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t> rounds_;  ///< rounds so far
  std::int64_t flying_ = -1;          ///< fragment that is sent and not merged
  std::int64_t due_ = 0;              ///< number of slots after which it is merged
};

StreamingDiloco::StreamingDiloco(const Options& options)
    : interval_(options.integer("interval")),
      count_(options.integer("fragments")),
      delay_(options.integer("delay")),
      alpha_(options.real("alpha")),
      full_first_(options.text("first_sync") == "full"),
      outer_(options),
      wire_(options.choice("communication", kWires)) {
  const auto patterns = options.texts("patterns");
  patterns_.assign(patterns.begin(), patterns.end());
  if (!patterns_.empty()) count_ = static_cast<std::int64_t>(patterns_.size());
  if (count_ > interval_) {
    fail_config(
        fmt::format("sync streaming_diloco: {} fragments in an interval of {} slots: each needs its own "
                    "slot; raise sync.interval or take fewer fragments",
                    count_, interval_));
  }
  if (delay_ >= interval_ / count_) {
    fail_config(
        fmt::format("sync streaming_diloco: delay = {} with {} fragments in an interval of {} slots: the "
                    "next fragment leaves {} slots after one that is still in flight; take a delay below "
                    "that, fewer fragments, or a longer interval",
                    delay_, count_, interval_, interval_ / count_));
  }
}

void StreamingDiloco::start(Replica& replica) {
  SyncBase::start(replica);
  elementwise_ = &replica.device().family<Elementwise>();
  refuse_copied_tables(replica, "streaming_diloco");
  fragments_ = cut_fragments(replica.live(), count_, patterns_);
  for (std::int64_t p = 0; p < count_; ++p) offsets_.push_back(offset(p));
  rounds_.assign(fragments_.size(), 0);
  anchor_ = &replica.create_set("anchor");
  outer_.start(replica);
  wire_.start(replica, fragments_);
  replica.copy(replica.live(), *anchor_);
}

std::int64_t StreamingDiloco::offset(std::int64_t fragment) const {
  return interval_ / count_ * fragment + interval_ % count_ * fragment / count_;
}

std::int64_t StreamingDiloco::first_round() const {
  return (full_first_ || count_ == 1 ? interval_ : offset(1)) + delay_;
}

int StreamingDiloco::leaving(std::int64_t done) const {
  for (std::size_t p = 0; p < offsets_.size(); ++p) {
    const std::int64_t offset = offsets_[p];
    const std::int64_t first = full_first_ || offset == 0 ? interval_ + offset : offset;
    if (done >= first && (done - offset) % interval_ == 0) return static_cast<int>(p);
  }
  return -1;
}

void StreamingDiloco::after_step(const Slot& slot, const StepOutcome&) {
  const std::int64_t done = slot.t + 1;
  if (flying_ >= 0 && done == due_) merge(static_cast<std::size_t>(flying_));
  const int fragment = leaving(done);
  if (fragment < 0) return;
  send(static_cast<std::size_t>(fragment));
  flying_ = fragment;
  due_ = done + delay_;
  if (delay_ == 0) merge(static_cast<std::size_t>(fragment));
}

void StreamingDiloco::send(std::size_t fragment) {
  for (const Lane& lane : fragments_[fragment].lanes) {
    const TensorView anchor = anchor_->arena(lane.arena), live = replica().live().arena(lane.arena);
    for (const Run& run : lane.runs)
      elementwise_->subtract(run_of(anchor, run), run_of(live, run), packed_run(wire_.packed(lane), run));
  }
  wire_.send(fragment);
}

void StreamingDiloco::merge(std::size_t fragment) {
  wire_.land();
  ++rounds_[fragment];
  for (const Lane& lane : fragments_[fragment].lanes) {
    for (const Run& run : lane.runs) {
      const TensorView anchor = run_of(anchor_->arena(lane.arena), run);
      const TensorView live = run_of(replica().live().arena(lane.arena), run);
      outer_.step(lane.arena, run.begin, anchor, packed_run(wire_.packed(lane), run), rounds_[fragment]);
      if (alpha_ == 0)
        replica().device().copy(anchor, live);
      else if (alpha_ < 1)
        elementwise_->lerp(live, anchor, 1 - alpha_);
    }
  }
  for (const int parameter : fragments_[fragment].parameters) {
    anchor_->touch(parameter);
    if (alpha_ < 1) replica().live().touch(parameter);
  }
  flying_ = -1;
  if (fragment == 0) sync_anchor_buffers();
}

// Once per interval; the anchor is evaluated with these statistics.
void StreamingDiloco::sync_anchor_buffers() {
  replica().sync_buffers();
  const ParameterSet& live = replica().live();
  for (const ParameterInfo& info : live.parameters()) {
    if (info.spec.role != Role::kBuffer || live.tensor(info.index).empty()) continue;
    replica().device().copy(live.tensor(info.index), anchor_->tensor(info.index));
    anchor_->touch(info.index);
  }
}

void StreamingDiloco::state(StateVisitor& visitor) {
  visitor.integer("flying", flying_);
  visitor.integer("due", due_);
  for (std::size_t p = 0; p < rounds_.size(); ++p) visitor.integer(fmt::format("rounds{}", p), rounds_[p]);
  const auto buffers = wire_.buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) visitor.tensor(fmt::format("delta{}", i), buffers[i]);
}

}  // namespace tenon::sync_streaming

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sync_streaming",
                               .version = "0.1.0",
                               .summary = "weights synchronised in fragments, in the background"},
             tenon::sync_streaming::StreamingDiloco)
