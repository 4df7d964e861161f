// Contract `sync/1`: when and how replicas agree (calls in the order of the step; see docs/step.md).
// Calls come from the rank's training thread unless said otherwise. Sync sees only the replica group: sums
// over model axes are the layers' own adjoints.
#pragma once

#include <tenon/device.hpp>
#include <tenon/parameter.hpp>
#include <tenon/transport.hpp>

#include <memory>

TENON_ABI_BEGIN

class Host;
class StateVisitor;

/// t counts slots: MIX, SKIP and refused updates advance it, never the optimizer's own count.
struct Slot {
  std::int64_t t = 0;
  int replica = 0;
  double lr = 0;  ///< schedule(t), before lr_scale
};

enum class SlotKind : std::uint8_t { kGrad, kMix, kSkip };

struct SlotPlan {
  SlotKind kind = SlotKind::kGrad;
  double lr_scale = 1;        ///< multiplies the rate of a GRAD slot, e.g. 1 / (1 - p)
  bool consumes_data = true;  ///< whether a MIX or SKIP slot moves the data cursor
};

/// Outcome of a slot. Only a GRAD slot can be applied.
struct StepOutcome {
  SlotKind kind = SlotKind::kGrad;
  bool applied = false;
  double loss = 0;
};

/// Group whose gradients make up an update, and which agrees on non-finite values, norm and refusal: each
/// replica alone, or all replicas.
enum class GradientGroup : std::uint8_t { kReplica, kAllReplicas };

/// A slice of the gradient arena that is complete once backward has passed it. All replicas have the same
/// buckets.
struct Bucket {
  int index = 0;
  int arena = 0;
  std::int64_t begin = 0;  ///< element within the arena
  TensorView gradients;
};

/// The replica as a strategy sees it. Outlives the sync component.
class Replica {
 public:
  virtual ~Replica();
  virtual int replica() const = 0;
  virtual int replicas() const = 0;
  virtual std::uint64_t seed() const = 0;
  virtual Device& device() = 0;
  virtual Host& host() = 0;
  /// Returns the communicator of the replicas that hold the same shards; null when there is one replica.
  virtual Communicator* group(Purpose purpose) = 0;
  /// Opens another communicator over that group, e.g. for a background actor. All replicas must open it.
  virtual std::unique_ptr<Communicator> open(std::string_view name, Purpose purpose) = 0;
  /// [parallel] servers: ranks that hold the central state of a strategy (<tenon/sync_extra.hpp>).
  virtual int servers() const = 0;
  /// Opens a communicator of two members, this rank and server `server`, in this order; the server opens the
  /// same name and purpose. Throws Error(kConfig) when there is no such server.
  virtual std::unique_ptr<Communicator> open_to_server(int server, std::string_view name,
                                                       Purpose purpose) = 0;
  virtual ParameterSet& live() = 0;
  virtual ParameterSet& gradients() = 0;
  /// Factor from the gradients that on_gradients_ready sees to those of the slot's mean loss (1 / loss
  /// scale). State from gradients that a strategy keeps beyond a slot (error feedback) is in units of the
  /// mean loss.
  virtual double gradient_scale() const = 0;
  /// Targets that this replica's gradients of the slot are a mean over; known when on_gradients_ready is
  /// called.
  virtual double gradient_count() const = 0;
  /// Largest rate of the schedule in the run's slots, before lr_scale. Known before start. In a run of more
  /// than 2^20 slots not every one is asked: exact for rates that rise to one peak and then fall or stay.
  virtual double peak_rate() const = 0;
  /// State of the dense optimizer, owned by the core: one set per slot of the rule, with the trained arenas
  /// of live alone; row tables excluded. Every rank has the same ones in the same order. A writer calls
  /// touch.
  virtual std::span<ParameterSet* const> optimizer_state() = 0;
  /// Core-owned copy with the layout of live (anchor, centre, outer momentum), zero at first; saved, hashed,
  /// restored.
  /// Row tables are not copied: table() of the copy is that of live.
  virtual ParameterSet& create_set(std::string_view name) = 0;
  /// to = from, all arenas; raises versions of `to`.
  virtual void copy(const ParameterSet& from, ParameterSet& to) = 0;
  /// Applies [sync] buffers (average, broadcast, local) to the buffers of `live`. Collective over the
  /// replicas: a strategy whose replicas update alone calls it in its synchronisation rounds. With
  /// GradientGroup::kAllReplicas the core calls it in every applied slot.
  virtual void sync_buffers() = 0;
  virtual std::span<const Bucket> buckets() const = 0;
  /// Parks workers and actors at their next slot boundary until resume(); nests. From any actor's thread too.
  virtual void pause() = 0;
  virtual void resume() = 0;
  virtual std::int64_t slot() const = 0;  ///< now running; readable from actors
};

class Sync {
 public:
  using Interface = Sync;
  static constexpr const char* kKind = "sync/1";
  virtual ~Sync();
  /// Called once after initial weights exist and are equal on all replicas (the core broadcast them), and
  /// before a restore.
  virtual void start(Replica& replica) = 0;
  /// Slots after which the strategy has first done what it is for (a sync round, a compressed message); 0: it
  /// does so from the first slot on, or at no planned slot. Pure; may be called before start. A shorter run
  /// is warned of.
  virtual std::int64_t first_round() const = 0;
  /// Pure in configuration, seed, replica and t.
  virtual SlotPlan plan(const Slot& slot) const = 0;
  virtual GradientGroup gradient_group() const = 0;
  /// During the last backward, in bucket order.
  virtual void on_gradients_ready(const Bucket& bucket) = 0;
  /// On return the gradients are those for the optimizer (a mean over replicas, or this replica's own).
  virtual void finish_gradients() = 0;
  /// Called in every slot.
  virtual void after_step(const Slot& slot, const StepOutcome& outcome) = 0;
  /// Finishes transfers in flight without applying them; actors are parked. Before saving and evaluation.
  virtual void quiesce() = 0;
  /// The parameters to evaluate, export and hash.
  virtual ParameterSet& evaluation_parameters() = 0;
  virtual void state(StateVisitor& visitor) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// Base with the answers of a strategy that does nothing; override what differs.
class SyncBase : public Sync {
 public:
  ~SyncBase() override;
  void start(Replica& replica) override;
  std::int64_t first_round() const override;
  SlotPlan plan(const Slot& slot) const override;
  GradientGroup gradient_group() const override;
  void on_gradients_ready(const Bucket& bucket) override;
  void finish_gradients() override;
  void after_step(const Slot& slot, const StepOutcome& outcome) override;
  void quiesce() override;
  ParameterSet& evaluation_parameters() override;
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;

 protected:
  Replica& replica() const;

 private:
  Replica* replica_ = nullptr;
};

/// Base of a strategy around another one (option::component("inner", "sync/1")): all calls go to the inner
/// one, so a decorator that overrides a function calls SyncDecorator's version to reach it. State of the
/// inner one is "inner".
class SyncDecorator : public SyncBase {
 public:
  explicit SyncDecorator(Sync* inner);
  ~SyncDecorator() override;
  void start(Replica& replica) override;
  std::int64_t first_round() const override;
  SlotPlan plan(const Slot& slot) const override;
  GradientGroup gradient_group() const override;
  void on_gradients_ready(const Bucket& bucket) override;
  void finish_gradients() override;
  void after_step(const Slot& slot, const StepOutcome& outcome) override;
  void quiesce() override;
  ParameterSet& evaluation_parameters() override;
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;

 private:
  Sync* inner_;
};

TENON_ABI_END
