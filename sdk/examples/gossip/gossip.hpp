// Sync `gossip` (contract sync/1): replicas update alone and, every `period` slots, average their weights
// with their neighbours on a ring (decentralised parallel SGD, Lian et al. 2017, with a ring's mixing
// matrix):
//   K = 2:  x_r <- (x_r + x_other) / 2
//   K > 2:  x_r <- (x_{r-1} + x_r + x_{r+1}) / 3
// Rows and columns of both matrices sum to one, so exchanges preserve the mean over replicas. That mean is
// evaluated, exported and hashed. Sends S bytes (K = 2) or 2 S bytes (K > 2) per replica and exchange, S =
// bytes of weights.
#pragma once

#include <tenon/ops/elementwise.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sync.hpp>

#include <vector>

namespace gossip {

class Gossip final : public tenon::SyncBase {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::integer("period", "1")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots from one exchange with the neighbours to the next"),
  };
  static constexpr tenon::ComponentInfo kInfo{
      .id = "gossip", .summary = "averages weights with the neighbours on a ring", .options = kOptions};

  explicit Gossip(const tenon::Options& options) : period_(options.integer("period")) {}
  ~Gossip() override;

  void start(tenon::Replica& replica) override;
  /// Every period-th slot exchanges, whether or not its update was applied: replicas refuse updates
  /// independently, and all of them must take part in an exchange.
  void after_step(const tenon::Slot& slot, const tenon::StepOutcome& outcome) override;
  /// Writes the mean over all replicas into evaluation_parameters(). All replicas are at the same slot
  /// boundary.
  void quiesce() override;
  tenon::ParameterSet& evaluation_parameters() override;

 private:
  /// A trained arena and the buffers for its neighbours' copies.
  struct Exchange {
    int arena = 0;
    tenon::TensorView from_left, from_right;  // from_right only with more than two replicas
  };

  void mix(const Exchange& exchange);
  void release();

  std::int64_t period_;
  tenon::Communicator* ring_ = nullptr;  // null with one replica
  tenon::Communicator* all_ = nullptr;   // for the mean of an evaluation
  tenon::Elementwise* elementwise_ = nullptr;
  tenon::ParameterSet* mean_ = nullptr;
  std::vector<Exchange> exchanges_;
  std::vector<bool> averaged_;  // by arena: part of the mean (weights and running statistics)
};

}  // namespace gossip
