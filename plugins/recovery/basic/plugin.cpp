// The plugin `tenon.recovery_basic`: component `replica`, whole, and those of full.hpp, which tests include.
#include "full.hpp"

#include <tenon/tensor.hpp>

#include <algorithm>

namespace tenon::recovery_basic {

/// Recovery `replica` (contract recovery/1): a replacement for a dead replica copies the state of another
/// replica, so nothing is lost and nothing is read. Checkpoints as in `full` cover the death of all replicas,
/// and row tables that are sharded over the replicas, whose shards have no second copy.
class Replica final : public Full {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "replica",
      .summary = "restores a dead replica from a live one; also writes complete checkpoints",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "where nothing fails, saving changes no weight",
       .options = "every = 2",
       .other = "type = 'none'"},
  };
  explicit Replica(const Options& options) : Full(options) {}

  void bind(RecoveryHost& host) override;
  FailureDecision on_failure(const FailureEvent& failure) override;

 private:
  std::span<const Identity> identities() const override { return kIdentities; }

  std::size_t ranks_ = 1;
  bool rows_are_alone_ = false;  ///< some table is sharded over the replicas
};

void Replica::bind(RecoveryHost& host) {
  ranks_ = static_cast<std::size_t>(host.run().ranks);
  const auto parameters = host.run().live->parameters();
  rows_are_alone_ = std::any_of(parameters.begin(), parameters.end(), [](const ParameterInfo& info) {
    return is_sharded(info.spec, kReplicaAxis);
  });
}

FailureDecision Replica::on_failure(const FailureEvent& failure) {
  const bool some_live = !failure.dead.empty() && failure.dead.size() < ranks_;
  if (some_live && !rows_are_alone_) return {.action = FailureAction::kContinuePartial, .from_slot = -1};
  return Full::on_failure(failure);
}

}  // namespace tenon::recovery_basic

TENON_PLUGIN(
    tenon::PluginInfo{
        .id = "tenon.recovery_basic",
        .version = "0.1.0",
        .summary = "no checkpoints, complete checkpoints with roll-back, and state from live replicas"},
    tenon::recovery_basic::None, tenon::recovery_basic::Full, tenon::recovery_basic::Replica)
