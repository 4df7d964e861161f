// Base of the strategies of this plugin (Zheng et al., ShadowSync, arXiv 2003.03477): exchanges of weights
// with the other trainers. In the background an actor exchanges repeatedly while the workers train. In the
// foreground a worker exchanges after every `interval` slots, and trains on when the exchange is over.
// Stepped, the actor exchanges at these slots and the worker waits, which makes the same history as the
// foreground.
#pragma once

#include "merge.hpp"

#include <tenon/host.hpp>
#include <tenon/identities.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/options.hpp>
#include <tenon/state.hpp>
#include <tenon/sync.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace tenon::sync_shadow {

enum class Mode : std::uint8_t { kShadow, kForeground, kStepped };
inline constexpr auto kModes = option::choice<Mode>(
    {{"shadow", Mode::kShadow}, {"foreground", Mode::kForeground}, {"stepped", Mode::kStepped}});
inline constexpr const char* kLocks[] = {"none", "per_shard", nullptr};

inline constexpr OptionSpec kMode =
    option::text("mode", "'shadow'")
        .one_of(kModes)
        .doc_text(
            "shadow: exchanges run in the background; foreground: the worker runs them after a slot; "
            "stepped: the background runs them when a worker says so, for tests");
inline constexpr OptionSpec kInterval = option::integer("interval", "10")
                                            .at_least(1)
                                            .in_unit("slots")
                                            .doc_text("foreground and stepped: slots between two exchanges");
inline constexpr OptionSpec kAt =
    option::integers("at", "[]")
        .at_least(1)
        .in_unit("slots")
        .doc_text("foreground and stepped: numbers of slots after which to exchange, in place of interval");
inline constexpr OptionSpec kRest =
    option::real("rest", "1e-3")
        .at_least(1e-6)
        .in_unit("s")
        .doc_text("shadow: pause from the end of an exchange to the next, on the run's clock");
/// The least 'piece' in bytes; a smaller one takes longer to start than to send.
inline constexpr std::int64_t kLeastPiece = 256;
inline constexpr OptionSpec kPiece =
    option::integer("piece", "0")
        .at_least(0)
        .in_unit("byte")
        .doc_text(
            "weights are sent in pieces of at most this size, one after the other, so that other traffic on "
            "the link passes between them, at least 256; 0: everything for one destination at once");
inline constexpr OptionSpec kLock =
    option::text("merge_lock", "'none'")
        .one_of(kLocks)
        .doc_text("none: merge while workers train; per_shard: workers wait while a shard is merged");

class Shadow : public SyncBase, protected ComponentIdentities {
 public:
  explicit Shadow(const char* name, const Options& options);

  void start(Replica& replica) override;
  GradientGroup gradient_group() const override { return GradientGroup::kReplica; }
  void after_step(const Slot& slot, const StepOutcome& outcome) final;
  /// Collective. Completes and merges exchanges in flight, on all trainers: an exchange changes both its
  /// ends, so half of one must not be saved.
  std::int64_t first_round() const override;
  void quiesce() final;
  ParameterSet& evaluation_parameters() override;
  void state(StateVisitor& visitor) override;
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : SyncBase::query(id);
  }

 protected:
  /// Returns whether there is any partner for exchanges; called once, in start().
  virtual bool takes_part() const = 0;
  /// Returns the set that is evaluated, exported and hashed; created by the derived class's start().
  virtual ParameterSet& evaluated() const = 0;
  /// Called once, on all trainers, before the first exchange, and after a restore.
  virtual void begin() = 0;
  /// Runs a whole exchange on this thread; the workers stand still. slot: of its call.
  virtual void run_exchange(std::int64_t slot) = 0;
  /// Called in every slot without a scripted exchange.
  virtual void between(std::int64_t) {}
  /// Runs one step of the background. `going`: no stop was requested. Returns false at the end.
  virtual bool step(Actor& self, bool going) = 0;
  /// Called on all trainers with every actor parked: completes exchanges in flight and updates evaluated().
  virtual void settle() = 0;

  /// Ends the background; a derived destructor must call it first.
  void stop_background() { actor_.reset(); }
  /// Called when an exchange is complete: counts the updates since the last one.
  void synced();

  /// Runs `body` while the workers stand still, if merges are locked.
  template <typename Body>
  void merging(Body&& body) {
    if (!locked_) return body();
    struct Stand {
      explicit Stand(Replica& replica) : replica(replica) { replica.pause(); }
      ~Stand() { replica.resume(); }
      Replica& replica;
    } stand(replica());
    body();
  }

  const std::vector<int>& arenas() const { return arenas_; }
  /// Returns the weights of an arena, as reals.
  TensorView weights(int arena) const { return as_reals(replica().live().arena(arena)); }
  /// Allocates memory of the size of each of arenas(), as reals; released at the end.
  std::vector<TensorView> allocate();
  Elementwise& elementwise() const { return *elementwise_; }
  bool background() const { return mode_ == Mode::kShadow; }
  bool stepped() const { return mode_ == Mode::kStepped; }
  double rest() const { return rest_; }
  bool in_pieces() const { return piece_ > 0; }
  /// Returns the elements of the next piece of `left` elements.
  std::int64_t piece_of(DType dtype, std::int64_t left) const;
  ~Shadow() override;

 private:
  bool due(std::int64_t done) const;
  void fire(std::int64_t slot);
  void average_buffers();

  const char* name_;
  Mode mode_ = Mode::kShadow;
  std::int64_t interval_;
  std::vector<std::int64_t> at_;
  double rest_;
  std::int64_t piece_;  ///< bytes; 0 = whole
  bool locked_ = false;
  bool active_ = false;
  std::atomic<bool> begun_{false};
  std::atomic<std::int64_t> updates_{0};  ///< applied to this replica, by all workers
  std::int64_t synced_at_ = 0, syncs_ = 0;
  std::atomic<std::thread::id> stepper_{};
  int threads_ = 1;
  Elementwise* elementwise_ = nullptr;
  std::vector<int> arenas_;
  std::vector<TensorView> allocated_;
  std::unique_ptr<Actor> actor_;
};

}  // namespace tenon::sync_shadow
