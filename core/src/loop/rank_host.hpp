// Host of one rank: log, clock, background actors, and the services that plugins may ask for.
#pragma once

#include "graph/pass_place.hpp"
#include "loop/graph_edits.hpp"
#include "loop/pause_gate.hpp"
#include "loop/rank_log.hpp"

#include <tenon/clock.hpp>
#include <tenon/control.hpp>
#include <tenon/executor.hpp>
#include <tenon/generator.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/shared_objects.hpp>
#include <tenon/stored_model.hpp>
#include <tenon/tier.hpp>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

struct HostSpec {
  int rank = 0;
  int world_size = 1;
  int replica = 0;
  double deadline_s = 60;
  Clock* clock = nullptr;
  ControlPlane* control = nullptr;
  /// Null before a run folder exists: warnings and errors then go to standard error, and all into the log
  /// once there is one.
  RankLog* log = nullptr;
};

class RankHost final : public Host {
 public:
  RankHost(const HostSpec& spec, PauseGate& gate) : spec_(spec), gate_(gate) {}

  void log(LogLevel level, std::string_view message) override;
  int rank() const override { return spec_.rank; }
  int world_size() const override { return spec_.world_size; }
  double now() const override { return spec_.clock->now(); }
  std::unique_ptr<Actor> spawn(std::string_view name, std::function<void(Actor&)> loop) override;
  double deadline() const override { return spec_.deadline_s; }
  void* query(std::string_view interface_id) override {
    if (interface_id == LayerFactory::kId) return layers_;
    if (interface_id == NodePlaces::kId) return &node_places_;
    if (interface_id == SpanSink::kId) return spans_;
    if (interface_id == MetricSink::kId) return metrics_;
    if (interface_id == SharedObjects::kId) return shared_.get();
    if (interface_id == graph::PassPlaces::kId) return passes_;
    if (interface_id == StoredModels::kId) return stored_models_;
    if (interface_id == TableCounts::kId) return table_counts_;
    if (interface_id == Generator::kId && generator_) return generator_();
    return nullptr;
  }

  void set_slot(std::int64_t slot) { slot_.store(slot, std::memory_order_relaxed); }
  std::int64_t slot() const { return slot_.load(std::memory_order_relaxed); }
  const HostSpec& spec() const { return spec_; }
  /// From here on messages go to a file; the earlier ones are written first.
  void set_log(RankLog* log);
  /// Sets the sinks of components that time their work and of observers that write numbers.
  void set_sinks(SpanSink* spans, MetricSink* metrics) {
    spans_ = spans;
    metrics_ = metrics;
  }
  /// Source positions of the edits of the graph whose layers this host makes.
  NodePlaces& node_places() { return node_places_; }
  /// Sets the factory for layers that have graphs of their own.
  void set_layers(LayerFactory* layers) { layers_ = layers; }
  /// Sets who opens stored models for components.
  void set_stored_models(StoredModels* models) { stored_models_ = models; }
  /// Sets who knows what the tiers of the tables count; null where there are no tables.
  void set_table_counts(TableCounts* counts) { table_counts_ = counts; }
  /// Sets who answers for Generator::kId; the answer may be null.
  void set_generator(std::function<Generator*()> generator) { generator_ = std::move(generator); }
  /// Sets where executors state what they compute.
  void set_passes(graph::PassPlaces* passes) { passes_ = passes; }

 private:
  struct EarlyMessage {
    LogLevel level;
    std::string component, text;
  };

  HostSpec spec_;
  std::mutex early_mutex_;
  std::vector<EarlyMessage> early_;
  LayerFactory* layers_ = nullptr;
  NodePlaces node_places_;
  SpanSink* spans_ = nullptr;
  MetricSink* metrics_ = nullptr;
  graph::PassPlaces* passes_ = nullptr;
  StoredModels* stored_models_ = nullptr;
  TableCounts* table_counts_ = nullptr;
  std::function<Generator*()> generator_;
  PauseGate& gate_;
  std::unique_ptr<SharedObjects> shared_ = make_shared_objects();
  std::atomic<std::int64_t> slot_{-1};
  std::atomic<int> actors_{0};
};

}  // namespace tenon::train
