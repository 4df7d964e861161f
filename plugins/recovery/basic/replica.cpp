// Recovery `replica`: conditions for replacing a rank without loss.
#include "replica.hpp"

#include <tenon/tensor.hpp>

#include <algorithm>

namespace tenon::recovery_basic {

void Replica::bind(RecoveryHost& host) {
  ranks_ = static_cast<std::size_t>(host.run().ranks);
  const auto parameters = host.run().live->parameters();
  rows_are_alone_ = std::any_of(parameters.begin(), parameters.end(),
                                [](const ParameterInfo& info) { return is_cut(info.spec, kReplicaAxis); });
}

FailureDecision Replica::on_failure(const FailureEvent& failure) {
  const bool some_live = !failure.dead.empty() && failure.dead.size() < ranks_;
  if (some_live && !rows_are_alone_) return {.action = FailureAction::kContinuePartial, .from_slot = -1};
  return Full::on_failure(failure);
}

}  // namespace tenon::recovery_basic
