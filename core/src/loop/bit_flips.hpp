// Single bits that [[fault]] kind = "flip" turns over in a tensor of a slot, as a silent error of a machine
// does: nothing reports them, and no version of a weight grows. For tests and studies of what finds such
// errors.
#pragma once

#include "loop/faults.hpp"
#include "loop/replica.hpp"
#include "loop/update.hpp"

#include <tenon/executor.hpp>

#include <string>
#include <string_view>

namespace tenon::train {

class BitFlips {
 public:
  /// All outlive this. Throws Error(kConfig) for a tensor that this rank does not have, or a bit beyond its
  /// end.
  BitFlips(Faults& faults, RankReplica& replica, const ParameterSet& gradients, Updater& updater,
           Executor& executor);

  /// Whether an output changes in a forward from here on.
  bool wants_outputs() const { return faults_.flips(config::FaultSettings::What::kOutput); }
  void output(std::string_view node, int output, const TensorView& value);
  /// After the gradient exchange.
  void gradients();
  /// After an update.
  void updated();

 private:
  void check(const config::FaultSettings& fault) const;
  /// The tensor that a fault names; empty where it is an output, or absent.
  TensorView named(const config::FaultSettings& fault) const;
  void flip(const config::FaultSettings& fault, const TensorView& value);

  Faults& faults_;
  RankReplica& replica_;
  const ParameterSet& gradients_;
  Updater& updater_;
  Executor& executor_;
};

}  // namespace tenon::train
