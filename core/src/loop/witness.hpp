// Digests of the tensors of a slot, in the order in which the slot makes them: inputs, outputs of nodes,
// gradients, what the update left. A service writes them down ([run] witness_every); this part only reads, so
// a slot has the same bits with and without it.
#pragma once

#include "base/digests.hpp"
#include "loop/parts.hpp"
#include "loop/replica.hpp"
#include "loop/update.hpp"

#include <tenon/executor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

/// The part of a slot after which a tensor was looked at.
enum class WitnessPhase : std::uint8_t {
  kInput,     ///< a data field of a micro-batch
  kOutput,    ///< an output of a node, right after the node computed it
  kGradient,  ///< after the gradient exchange, before the update
  kWeight,    ///< after the update
  kState,     ///< the optimizer's, after the update
  kRound,     ///< a weight after a round of a strategy whose replicas update alone
};

struct WitnessTensor {
  WitnessPhase phase = WitnessPhase::kInput;
  std::string_view layer;  ///< node; "data" for inputs
  std::string_view name;   ///< as [[fault]] tensor names it
  std::int64_t micro = 0;  ///< micro-batch of inputs and outputs
};

/// Takes the digests of a slot, on the thread that runs it.
class WitnessSink {
 public:
  virtual ~WitnessSink() = default;
  /// Asked once per slot, before it runs. A slot that it does not want costs nothing.
  virtual bool wants(std::int64_t slot) = 0;
  virtual bool wants_outputs_of(std::string_view node) = 0;
  /// digest: 32 hexadecimal digits, xxh3-128 of the bytes that this rank holds.
  virtual void add(const WitnessTensor& tensor, const std::string& digest) = 0;
};

class SlotWitness {
 public:
  /// All outlive this.
  SlotWitness(Parts& parts, RankReplica& replica, Updater& updater, Executor& executor)
      : parts_(parts), replica_(replica), updater_(updater), executor_(executor) {}

  /// Null: no slot is recorded.
  void attach(WitnessSink* sink) { sink_ = sink; }
  void begin_slot(std::int64_t slot) { active_ = sink_ != nullptr && sink_->wants(slot); }
  bool active() const { return active_; }
  // Each of these does nothing unless the slot is wanted.
  void inputs(std::int64_t micro);
  void output(std::string_view node, int output, const TensorView& value);
  /// `rows`: gradients of rows that this rank is about to update.
  void gradients(const ParameterSet& gradients, std::span<const RowGradient> rows);
  /// Weights and optimizer state; of tables the rows that the update changed.
  void updated(std::span<const RowGradient> rows);
  void round();

 private:
  void weights(WitnessPhase phase);
  void add(WitnessPhase phase, std::string_view layer, std::string_view name, const TensorView& value,
           std::span<const std::int64_t> ids = {});
  /// Rows of a table in host memory.
  TensorView rows_of(const RowTable& table, std::span<const std::int64_t> ids);

  Parts& parts_;
  RankReplica& replica_;
  Updater& updater_;
  Executor& executor_;
  WitnessSink* sink_ = nullptr;
  bool active_ = false;
  std::int64_t micro_ = 0;
  Xxh3Stream stream_;
  std::vector<std::byte> host_, rows_;
};

/// "NODE" or "NODE:1": an output as configurations name it.
std::string output_name(std::string_view node, int output);

}  // namespace tenon::train
