// Observer `profile` (contract observer/1): time per layer and phase of a slot, from the core's spans.
// Written as profile.json and profile.txt into the run folder, and shown at the end. `tenon train --profile`
// adds it.
#pragma once

#include <tenon/files.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::profile {

// Seconds per layer and per phase, summed from spans. It depends on the core's tracks, not on files.

/// A node of the model: both directions.
struct LayerTime {
  std::string_view name;
  double forward_s = 0, backward_s = 0;
  double flops = 0, bytes = 0;

  double seconds() const { return forward_s + backward_s; }
};

/// Time of the slots by phase. The phases and `outside_s` add up to `slots_s`.
struct PhaseTimes {
  double forward_s = 0, backward_s = 0;  ///< inside layers
  double optimizer_s = 0, data_s = 0;
  double communication_s = 0;  ///< waiting for bytes
  double late_s = 0;           ///< waiting for the last rank to join
  double declared_s = 0;       ///< compute time of a simulated clock
  double outside_s = 0;        ///< in none of them: the training loop itself
  double slots_s = 0;
  double evaluate_s = 0, save_s = 0;  ///< between slots
};

class Account {
 public:
  void add(const Span& span);
  void end_slot(double seconds);
  /// Discards the spans added since the last end_slot.
  void drop_slot();

  std::int64_t slots() const { return slots_; }
  PhaseTimes phases() const;
  /// In the order of the first forward pass.
  const std::vector<LayerTime>& layers() const { return layers_; }

 private:
  LayerTime& layer(std::string_view name);

  std::vector<Span> waiting_;
  std::vector<LayerTime> layers_;
  PhaseTimes sums_;
  std::int64_t slots_ = 0;
};

// An account as a table for people and as JSON for programs.

/// Returns the phases, then the `rows` most expensive layers; "" for an account without slots.
std::string table(const Account& account, std::size_t rows);
/// Returns everything, in seconds per slot; see README.md for the keys.
std::string json(const Account& account);

class Profile final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("skip", "2")
          .at_least(0)
          .in_unit("slots")
          .doc_text("first slots, left out because caches and kernels are cold"),
      option::integer("rows", "20")
          .between(1, 2147483647)
          .doc_text("layers in the table; the JSON file has all"),
      option::boolean("print", "true").doc_text("print the table to standard error at the end"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "profile", .summary = "time per layer and phase, GFLOP/s, GB/s", .options = kOptions};

  explicit Profile(const Options& options);
  Profile(std::int64_t skip, std::size_t rows, bool print, std::unique_ptr<FileSystem> files);

  bool every_rank() const override { return false; }
  void on_start(const RunInfo& info) override;
  void on_slot(const SlotRecord& record) override;
  void on_metric(const Metric&) override {}
  void on_span(const Span& span) override { account_.add(span); }
  void on_finish(std::string_view status, std::string_view message) override;
  void* query(std::string_view interface_id) override {
    return interface_id == kSpanObserverId ? this : nullptr;
  }

 private:
  std::int64_t skip_;
  std::size_t rows_;
  bool print_;
  std::unique_ptr<FileSystem> files_;
  Account account_;
  std::string folder_;
  std::int64_t seen_ = 0;
};

}  // namespace tenon::profile
