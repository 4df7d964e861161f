// Finds the tensors of a checkpoint that are the weights of its run: those that its strategy evaluates and
// that `weights_hash` covers. Each save records the prefix of their names per replica, because only the
// strategy knows it: replicas may train on other weights (an anchor, a centre).
#pragma once

#include <tenon/checkpoint.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

/// Name of the meta block that holds the prefix for a replica: "evaluated/replica0".
std::string evaluated_key(int replica);

/// The weights of one replica in a checkpoint.
class StoredWeights {
 public:
  StoredWeights(const CheckpointReader& reader, std::string prefix, std::string own)
      : reader_(&reader), prefix_(std::move(prefix)), own_(std::move(own)) {}

  /// Name of the tensor with the values of `parameter`, whether it is there or not. Row tables exist once, so
  /// they are with the trained weights whichever set is evaluated.
  std::string tensor(std::string_view parameter) const;
  /// Names of all parameters that the checkpoint holds, ascending.
  std::vector<std::string> parameters() const;
  /// Whether these are the weights that the replica trains, and no other replica has the same by contract.
  bool own() const { return prefix_ == own_ && own_ != "model/"; }

 private:
  const CheckpointReader* reader_;
  std::string prefix_, own_;
};

/// By replica, at least one; `reader` outlives them. `doubt` says what cannot be known: checkpoints of
/// versions that did not record it, of strategies that keep sets of their own. Throws Error(kRun) without
/// weights.
std::vector<StoredWeights> stored_weights(const CheckpointReader& reader, std::string& doubt);

}  // namespace tenon::train
