// For tests of synchronisation strategies: replicas as threads over the thread transport, each with weights,
// gradients and buffers of the test's own, and slots that the test drives. No data, no model, no run.
#pragma once

#include <tenon/clock.hpp>
#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/sync.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tenon::testing {

/// An f32 parameter: trained, or a buffer.
struct SyncParameter {
  std::string name;
  Shape shape;
  Role role = Role::kParameter;
};

/// A replica as a strategy sees it. Each trained parameter is a bucket, the last one first.
class HarnessReplica final : public Replica {
 public:
  /// Gradient of a trained parameter at these weights.
  using Gradient =
      std::function<std::vector<double>(std::size_t parameter, const std::vector<double>& weights)>;

  HarnessReplica(Transport& transport, int replica, int replicas, std::vector<ParameterInfo> parameters)
      : bench_("cpu", "reference", 1),
        transport_(transport),
        replica_(replica),
        ranks_(replicas),
        parameters_(std::move(parameters)),
        live_(make_parameter_set("live", parameters_, *bench_.device, SetContents::kEverything)),
        gradients_(make_parameter_set("gradients", parameters_, *bench_.device, SetContents::kGradients)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
    for (auto info = parameters_.rbegin(); info != parameters_.rend(); ++info) {
      if (info->spec.role == Role::kParameter)
        buckets_.push_back({static_cast<int>(buckets_.size()), info->arena, info->begin,
                            gradients_->tensor(info->index).reshaped(Shape{info->local.elements()})});
    }
  }

  int replica() const override { return replica_; }
  int replicas() const override { return static_cast<int>(ranks_.size()); }
  std::uint64_t seed() const override { return 1; }
  Device& device() override { return *bench_.device; }
  Host& host() override { return bench_.host; }
  Communicator* group(Purpose purpose) override {
    if (ranks_.size() == 1) return nullptr;
    auto& group = groups_[static_cast<std::size_t>(purpose)];
    if (group == nullptr) group = open(purpose_name(purpose), purpose);
    return group.get();
  }
  std::unique_ptr<Communicator> open(std::string_view name, Purpose purpose) override {
    return transport_.open(replica_, {.ranks = ranks_, .name = name, .purpose = purpose});
  }
  int servers() const override { return 0; }
  std::unique_ptr<Communicator> open_to_server(int, std::string_view, Purpose) override {
    fail_config("a harness of strategies has no servers");
  }
  ParameterSet& live() override { return *live_; }
  ParameterSet& gradients() override { return *gradients_; }
  double gradient_scale() const override { return 1; }
  double gradient_count() const override { return 1; }
  double peak_rate() const override { return peak_rate_; }
  std::span<ParameterSet* const> optimizer_state() override { return {}; }
  ParameterSet& create_set(std::string_view name) override {
    sets_.push_back(make_parameter_set_beside(std::string(name), *live_, *bench_.device));
    return *sets_.back();
  }
  void copy(const ParameterSet& from, ParameterSet& to) override {
    for (int arena = 0; arena < from.arenas(); ++arena)
      if (!from.arena(arena).empty() && !to.arena(arena).empty())
        bench_.device->copy(from.arena(arena), to.arena(arena));
    to.touch(-1);
  }
  void sync_buffers() override { ++buffers_synced; }
  std::span<const Bucket> buckets() const override { return buckets_; }
  void pause() override {}
  void resume() override {}
  std::int64_t slot() const override { return slot_; }

  /// One slot of SGD as the core runs it: the plan, the gradients and what the strategy makes of them, the
  /// update, the end. A slot that is no GRAD slot updates nothing.
  void run_slot(Sync& sync, std::int64_t t, double lr, const Gradient& gradient) {
    slot_ = t;
    const Slot slot{t, replica_, lr};
    const SlotPlan plan = sync.plan(slot);
    StepOutcome outcome{plan.kind, plan.kind == SlotKind::kGrad, 0};
    if (outcome.applied) {
      for (const ParameterInfo& info : parameters_) {
        if (info.spec.role != Role::kParameter) continue;
        const std::size_t index = info.index;
        set(*gradients_, index, gradient(index, values(index)));
      }
      for (const Bucket& bucket : buckets_) sync.on_gradients_ready(bucket);
      sync.finish_gradients();
      for (const ParameterInfo& info : parameters_) {
        if (info.spec.role != Role::kParameter) continue;
        std::vector<double> weights = values(info.index);
        const std::vector<double> step = read(device(), gradients_->tensor(info.index));
        for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= lr * plan.lr_scale * step[i];
        set_values(info.index, weights);
      }
    }
    sync.after_step(slot, outcome);
  }

  /// Weights of this replica, and what the strategy gives out to be evaluated.
  std::vector<double> values(std::size_t parameter) { return read(device(), tensor(*live_, parameter)); }
  std::vector<double> evaluated(Sync& sync, std::size_t parameter) {
    return read(device(), tensor(sync.evaluation_parameters(), parameter));
  }
  void set_values(std::size_t parameter, const std::vector<double>& values) {
    set(*live_, parameter, values);
    live_->touch(static_cast<int>(parameter));
  }
  void set_peak_rate(double rate) { peak_rate_ = rate; }
  Bench& bench() { return bench_; }

  int buffers_synced = 0;

 private:
  static TensorView tensor(const ParameterSet& set, std::size_t parameter) {
    return set.tensor(static_cast<int>(parameter));
  }
  void set(const ParameterSet& target, std::size_t parameter, const std::vector<double>& values) {
    write(device(), tensor(target, parameter), values);
  }

  Bench bench_;
  Transport& transport_;
  int replica_;
  std::vector<int> ranks_;
  std::vector<ParameterInfo> parameters_;
  std::unique_ptr<ParameterSet> live_, gradients_;
  std::vector<std::unique_ptr<ParameterSet>> sets_;
  std::vector<Bucket> buckets_;
  std::array<std::unique_ptr<Communicator>, kPurposes> groups_;
  std::int64_t slot_ = 0;
  double peak_rate_ = 0;
};

/// The strategy is found through the environment (TENON_PLUGIN_PATH), as are the device `cpu` and the
/// transport `thread`. Each run begins with zero weights; a strategy that starts background loops needs a
/// whole run instead.
class SyncHarness {
 public:
  explicit SyncHarness(int replicas, const std::vector<SyncParameter>& parameters, double deadline_s = 20)
      : replicas_(replicas), deadline_s_(deadline_s) {
    std::int64_t end[2] = {0, 0};  // of the trained arena, of the buffers'
    for (const SyncParameter& parameter : parameters) {
      ParameterInfo info;
      info.spec.name = parameter.name;
      info.spec.shape = info.local = info.offset = parameter.shape;
      for (int dim = 0; dim < parameter.shape.rank(); ++dim) info.offset[dim] = 0;
      info.spec.role = parameter.role;
      info.spec.trainable = parameter.role == Role::kParameter;
      info.index = static_cast<int>(parameters_.size());
      info.arena = info.spec.trainable ? 0 : 1;
      info.begin = (end[info.arena] + 15) / 16 * 16;  // 64 bytes
      end[info.arena] = info.begin + parameter.shape.elements();
      parameters_.push_back(std::move(info));
    }
  }

  /// Runs body(replica, its strategy) on a thread per replica. Throws Error(kRun) with the errors of all
  /// replicas.
  void run(std::string_view type, std::string_view toml,
           const std::function<void(HarnessReplica&, Sync&)>& body) {
    Bench bench("cpu", "reference", 1);
    const auto clock = make_wall_clock();
    const auto transport = bench.make_component<Transport>("thread", "");
    transport->connect({.ranks = replicas_, .deadline_s = deadline_s_, .link = {}, .clock = clock.get()});
    std::vector<std::string> errors(static_cast<std::size_t>(replicas_));
    std::vector<std::thread> threads;
    for (int r = 0; r < replicas_; ++r) {
      const int id = clock->announce(r, 0, "replica " + std::to_string(r));
      threads.emplace_back([&, r, id] {
        clock->enter(id);
        try {
          HarnessReplica replica(*transport, r, replicas_, parameters_);
          const auto sync = replica.bench().make_component<Sync>(type, toml);
          sync->start(replica);
          body(replica, *sync);
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(r)] = error.what();
          transport->cancel("replica " + std::to_string(r) + " failed");
        }
        clock->leave();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int p = 0; p < kPurposes; ++p)
      bytes_[static_cast<std::size_t>(p)] = transport->counts(0, static_cast<Purpose>(p)).bytes_sent;
    std::string all;
    for (std::size_t r = 0; r < errors.size(); ++r)
      if (!errors[r].empty())
        all += (all.empty() ? "replica " : "\nreplica ") + std::to_string(r) + ": " + errors[r];
    if (!all.empty()) fail_run(all);
  }

  /// Bytes that replica 0 sent in the last run.
  std::uint64_t bytes_sent(Purpose purpose) const { return bytes_[static_cast<std::size_t>(purpose)]; }

 private:
  int replicas_;
  double deadline_s_;
  std::vector<ParameterInfo> parameters_;
  std::array<std::uint64_t, kPurposes> bytes_{};
};

}  // namespace tenon::testing
