// A strategy that wraps the one under test in a whole run and sees each call from both sides. It stresses the
// inner one with its own gradients, delays, a stalled rank, and more calls of quiesce and plan than the core
// makes. Its record is read after the run.
#pragma once

#include <tenon/host.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/state.hpp>
#include <tenon/sync.hpp>

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::conformance {

/// One slot of one replica.
struct SlotSeen {
  std::int64_t t = 0;
  bool applied = false;
  std::vector<double> own, received;  ///< gradients passed in, and the result of finish_gradients; by bucket
  std::vector<double> weights;        ///< live, after the slot
  /// evaluation_parameters() without buffers, after quiesce(); empty if those are the live weights. With
  /// `quiesces`.
  std::vector<double> evaluated;
};

struct ReplicaSeen {
  GradientGroup group = GradientGroup::kReplica;
  std::vector<SlotSeen> slots;
  std::vector<double> start;  ///< live weights before the first slot
  double longest_call_s = 0;  ///< of one call of the strategy
  std::string error;          ///< of the call that ended the replica's run
  std::string complaint;      ///< the first broken promise found during the run
};

/// By replica; filled by all rank threads of the runs since the last take().
struct SyncLog {
  std::mutex mutex;
  std::map<int, ReplicaSeen> replicas;
  std::map<int, ReplicaSeen> take();
};
SyncLog& sync_log();

class WatchedSync final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::component("inner", "sync/1").mandatory().doc_text("the strategy under test"),
      option::boolean("drawn", "false").doc_text("each replica gets gradients of its own, constant in time"),
      option::boolean("delays", "false").doc_text("each call waits a little, by chance"),
      option::boolean("ask_plans", "false").doc_text("asks plan() out of order, for all replicas"),
      option::boolean("quiesces", "false").doc_text("quiesce() twice after each slot"),
      option::real("stall_s", "0.0")
          .doc_text("replica 1 sleeps so long in slot 3, or until replica 0 has waited a third of it"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "conformance_watched", .summary = "looks at a strategy", .options = kOptions};
  explicit WatchedSync(const Options& options);

  void start(Replica& replica) override;
  void on_gradients_ready(const Bucket& bucket) override;
  void finish_gradients() override;
  void after_step(const Slot& slot, const StepOutcome& outcome) override;

  /// Replica that owns an element of a bucket: the drawn gradients of two replicas have no element in common.
  static int owner(std::int64_t element, int replicas) { return static_cast<int>(element % replicas); }

 private:
  void draw(const Bucket& bucket);
  void wait_a_little(std::uint64_t where);
  void stall();
  template <typename Call>
  void timed(Call&& call);
  std::vector<double> gradients();
  void ask_plans(const Slot& slot);
  void complain(const std::string& text);

  bool drawn_, delays_, ask_plans_, quiesces_;
  bool said_untouched_ = false;  // it no longer waits after the first complaint of that kind
  double stall_s_;
  SlotSeen now_;
  ReplicaSeen seen_;
  std::map<std::pair<std::int64_t, int>, SlotPlan> plans_;
};

/// Float32 that refuses updates: every third slot, on all ranks or on rank 0 alone.
class RefusingPrecision final : public Precision {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::boolean("alone", "false").doc_text("only rank 0 refuses")};
  static constexpr ComponentInfo kInfo{
      .id = "conformance_refusing", .summary = "refuses every third update", .options = kOptions};
  RefusingPrecision(const Options& options, Host& host)
      : refuses_(!options.boolean("alone") || host.rank() == 0) {}
  DType activations() const override { return DType::kF32; }
  DType parameters() const override { return DType::kF32; }
  std::unique_ptr<LinearSite> bind(const SiteInfo&, SiteHost&) override { return nullptr; }
  double loss_scale() const override { return 1; }
  bool after_backward(const BackwardStats& stats) override {
    return !stats.found_non_finite && !(refuses_ && stats.slot % 3 == 1);
  }
  void state(StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  bool refuses_;
};

}  // namespace tenon::conformance
