// The replica of one rank as strategies see it: its parameter sets, buckets and communicators.
#pragma once

#include "config/run_schema.hpp"
#include "loop/pause_gate.hpp"
#include "loop/rank_host.hpp"
#include "loop/traced_communicator.hpp"

#include <tenon/executor.hpp>
#include <tenon/sync.hpp>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::train {

/// Splits each gradient arena into buckets of whole parameters: the first closes at 1 MiB, so that
/// communication starts early, the others at 25 MiB (Li et al., PyTorch Distributed, 2020, section 3.2.3),
/// unless the strategy says otherwise.
struct BucketPlan {
  std::vector<Bucket> buckets;
  std::vector<int> bucket_of;   ///< per parameter; -1 without a gradient
  std::vector<int> parameters;  ///< per bucket
};
struct BucketCaps {
  std::int64_t first = std::int64_t{1} << 20, others = std::int64_t{25} << 20;  ///< bytes
};
BucketPlan plan_buckets(const ParameterSet& gradients, const BucketCaps& caps = {});

struct ReplicaSpec {
  int replica = 0;
  int replicas = 1;
  int mesh_index = 0;      ///< position in the mesh
  std::vector<int> peers;  ///< world ranks that hold the same shards, by replica
  int servers = 0;
  int first_server = 0;  ///< world rank
  std::uint64_t seed = 1;
  std::uint32_t epoch = 0;
  config::BufferPolicy buffers = config::BufferPolicy::kAverage;
  BucketCaps buckets;
  Device* device = nullptr;
  RowPlaces* places = nullptr;  ///< of row tables; null: host memory
  RankHost* host = nullptr;
  PauseGate* gate = nullptr;
  Transport* transport = nullptr;  ///< null when there is one replica
  CommunicatorWatch watch;
};

class RankReplica final : public Replica {
 public:
  RankReplica(const ReplicaSpec& spec, const std::vector<ParameterInfo>& parameters);
  ~RankReplica() override;

  int replica() const override { return spec_.replica; }
  int replicas() const override { return spec_.replicas; }
  std::uint64_t seed() const override { return spec_.seed; }
  Device& device() override { return *spec_.device; }
  Host& host() override { return *spec_.host; }
  Communicator* group(Purpose purpose) override;
  std::unique_ptr<Communicator> open(std::string_view name, Purpose purpose) override;
  int servers() const override { return spec_.servers; }
  std::unique_ptr<Communicator> open_to_server(int server, std::string_view name, Purpose purpose) override;
  ParameterSet& live() override { return *live_; }
  ParameterSet& gradients() override { return *gradients_; }
  double gradient_scale() const override { return gradient_scale_; }
  double gradient_count() const override { return gradient_count_; }
  double peak_rate() const override { return peak_rate_(); }
  std::span<ParameterSet* const> optimizer_state() override { return optimizer_state_; }
  ParameterSet& create_set(std::string_view name) override;
  void copy(const ParameterSet& from, ParameterSet& to) override;
  void sync_buffers() override;
  std::span<const Bucket> buckets() const override { return plan_.buckets; }
  void pause() override { spec_.gate->pause(); }
  void resume() override { spec_.gate->resume(); }
  std::int64_t slot() const override { return spec_.host->slot(); }

  void set_gradient_scale(double scale) { gradient_scale_ = scale; }
  void set_gradient_count(double count) { gradient_count_ = count; }
  /// Sets what a strategy may ask for in start. `peak_rate` is called only then, since it asks for many
  /// rates.
  void set_update(std::function<double()> peak_rate, std::vector<ParameterSet*> optimizer_state) {
    peak_rate_ = std::move(peak_rate);
    optimizer_state_ = std::move(optimizer_state);
  }
  const BucketPlan& bucket_plan() const { return plan_; }
  const std::vector<std::unique_ptr<ParameterSet>>& created_sets() const { return created_; }

 private:
  ReplicaSpec spec_;
  std::vector<ParameterInfo> parameters_;
  std::unique_ptr<ParameterSet> live_, gradients_;
  std::vector<std::unique_ptr<ParameterSet>> created_;
  BucketPlan plan_;
  double gradient_scale_ = 1, gradient_count_ = 0;
  std::function<double()> peak_rate_;
  std::vector<ParameterSet*> optimizer_state_;
  std::array<std::unique_ptr<Communicator>, kPurposes> groups_;
};

/// Name of the communicator between a trainer and a server.
std::string pair_name(std::string_view name);

}  // namespace tenon::train
