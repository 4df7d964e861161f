// Runs of a small recommendation model whose tables are sharded over the replicas, and a record of the reads
// of its data.
#pragma once

#include "world.hpp"

#include <tenon/dataset.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/state.hpp>

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

namespace tenon::sync_test {

inline constexpr std::int64_t kTables = 4, kRowsOfTable = 240, kWidth = 8, kBatch = 32;

struct Clicks {
  std::mutex mutex;
  std::map<std::int64_t, std::vector<std::int32_t>> ids;  ///< of training, by first sample of a batch
  std::map<std::int64_t, int> reads;                      ///< likewise: how often
  std::map<int, std::int64_t> accesses;                   ///< reported to observers, by rank
};
inline Clicks clicks;

/// Planted clicks. `disjoint` = n: a batch of replica r of n reads rows r, r + n, r + 2 n, ... alone.
class ClicksData final : public Dataset {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "dataset/1").mandatory(),
                                            option::integer("disjoint", "0")};
  static constexpr ComponentInfo kInfo{
      .id = "clicks", .summary = "clicks that are written down", .options = kOptions};
  explicit ClicksData(const Options& options)
      : inner_(options.component<Dataset>("inner")), disjoint_(options.integer("disjoint")) {}
  void open(std::uint64_t seed) override { inner_->open(seed); }
  std::int64_t batch() const override { return inner_->batch(); }
  const DataInfo& info() const override { return inner_->info(); }
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    inner_->read(request, fields);
    if (request.split != Split::kTrain) return;
    const std::span<std::int32_t> ids = fields[1].span<std::int32_t>();
    const std::int64_t replica = disjoint_ > 0 ? request.first / batch() % disjoint_ : 0;
    for (std::int32_t& id : ids) {
      if (disjoint_ > 0) id = static_cast<std::int32_t>(id / disjoint_ * disjoint_ + replica);
    }
    const std::lock_guard lock(clicks.mutex);
    clicks.ids[request.first].assign(ids.begin(), ids.end());
    ++clicks.reads[request.first];
  }
  void* query(std::string_view id) override { return inner_->query(id); }

 private:
  Dataset* inner_;
  std::int64_t disjoint_;
};

/// Another rule, with rows moved by `row_share` of the rate.
class RowShare final : public Optimizer, public RowOptimizer {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "optimizer/1").mandatory(),
                                            option::real("row_share", "1")};
  static constexpr ComponentInfo kInfo{.id = "row_share",
                                       .summary = "a rate of their own for rows",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD};
  explicit RowShare(const Options& options)
      : inner_(options.component<Optimizer>("inner")),
        rows_(static_cast<RowOptimizer*>(inner_->query(RowOptimizer::kId))),
        share_(options.real("row_share")) {}
  double base_lr() const override { return inner_->base_lr(); }
  std::span<const StateSlot> slots() const override { return inner_->slots(); }
  bool elementwise() const override { return inner_->elementwise(); }
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    inner_->step(context, slice);
  }
  void state(StateVisitor& visitor) override { inner_->state(visitor); }
  void* query(std::string_view id) override {
    return id == RowOptimizer::kId ? static_cast<RowOptimizer*>(this) : inner_->query(id);
  }
  std::span<const RowStateSlot> row_slots() const override { return rows_->row_slots(); }
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient) override {
    UpdateContext shared = context;
    shared.lr *= share_;
    rows_->step_rows(shared, weights, state, gradient);
  }

 private:
  Optimizer* inner_;
  RowOptimizer* rows_;
  double share_;
};

/// Counts the accesses that each rank reports.
class CountsRows final : public Observer, public RowObserver {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_rows", .summary = "counts"};
  CountsRows(const Options&, Host& host) : rank_(host.rank()) {}
  bool every_rank() const override { return true; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord&) override {}
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view id) override {
    return id == RowObserver::kId ? static_cast<RowObserver*>(this) : nullptr;
  }
  void on_tables(std::span<const ParameterInfo> tables) override {
    for (const ParameterInfo& info : tables)
      owned_[info.index] = {info.offset[0], info.offset[0] + info.local[0]};
  }
  void on_accesses(int parameter, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts) override {
    const std::lock_guard lock(clicks.mutex);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_GE(ids[i], owned_.at(parameter).first);
      EXPECT_LT(ids[i], owned_.at(parameter).second);
      clicks.accesses[rank_] += counts[i];
    }
  }

 private:
  int rank_;
  std::map<int, std::pair<std::int64_t, std::int64_t>> owned_;
};

/// Replica 1 reaches every boundary late, and leaves it late.
class ComesLate final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory()};
  static constexpr ComponentInfo kInfo{.id = "comes_late", .summary = "dawdles", .options = kOptions};
  explicit ComesLate(const Options& options) : SyncDecorator(options.component<Sync>("inner")) {}
  void finish_gradients() override {
    SyncDecorator::finish_gradients();
    dawdle();
  }
  void quiesce() override {
    SyncDecorator::quiesce();
    dawdle();
  }

 private:
  void dawdle() {
    if (replica().replica() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
};

TENON_STATIC_PLUGIN(clicking, PluginInfo{.id = "test.clicks", .version = "1.0.0", .summary = "clicks"},
                    ClicksData, RowShare, CountsRows, ComesLate)

/// A DLRM of kTables tables on `replicas` trainers of one worker each, unwatched.
inline World clicks_world(int replicas, const std::string& data = {}) {
  World world{.replicas = replicas,
              .slots = 24,
              .optimizer = "type = \"rowwise_adagrad\"\nlr = 0.02\n",
              .precision = "fp32"};
  world.watched = false;
  world.model =
      "[data]\ntype = \"clicks\"\ninner = {type = \"synthetic_ctr\", tables = 4, rows = [240], batch = "
      "32}\n" +
      data + "[model]\ntype = \"dlrm\"\nbottom = [16, 8]\ntop = [16, 1]\nplacement = \"rows\"\n";
  return world;
}

inline World on_request(World world, std::vector<std::string> sets = {}) {
  world.sets.emplace_back("parallel.rows=request");
  world.sets.insert(world.sets.end(), sets.begin(), sets.end());
  return world;
}

inline Outcome train_clicks(const std::string& strategy, const World& world, const std::string& folder = {},
                            bool resume = false) {
  {
    const std::lock_guard lock(clicks.mutex);
    clicks.ids.clear();
    clicks.reads.clear();
    clicks.accesses.clear();
  }
  return train(strategy, world, folder, resume, &clicking);
}

/// Error of a run, or of building it.
inline std::string refusal_of_clicks(const std::string& strategy, const World& world) {
  try {
    return train_clicks(strategy, world).result.error;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tenon::sync_test
