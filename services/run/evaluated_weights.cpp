// Reading of evaluated_weights.hpp.
#include "run/evaluated_weights.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tenon::train {
namespace {

constexpr std::string_view kShared = "model/";

bool holds(const CheckpointReader& reader, std::string_view prefix) {
  return std::ranges::any_of(reader.tensors(),
                             [&](const TensorSpec& tensor) { return tensor.name.starts_with(prefix); });
}

}  // namespace

std::string evaluated_key(int replica) {
  return fmt::format("evaluated/replica{}", replica);
}

std::string StoredWeights::tensor(std::string_view parameter) const {
  for (const std::string_view prefix : {std::string_view(prefix_), std::string_view(own_), kShared}) {
    std::string name = std::string(prefix).append(parameter);
    if (reader_->find(name) != nullptr) return name;
  }
  return prefix_ + std::string(parameter);
}

std::vector<std::string> StoredWeights::parameters() const {
  std::set<std::string> names;
  for (const TensorSpec& tensor : reader_->tensors()) {
    for (const std::string_view prefix : {std::string_view(own_), kShared}) {
      if (tensor.name.starts_with(prefix)) names.insert(tensor.name.substr(prefix.size()));
    }
  }
  return {names.begin(), names.end()};
}

std::vector<StoredWeights> stored_weights(const CheckpointReader& reader, std::string& doubt) {
  std::vector<StoredWeights> found;
  for (int replica = 0;; ++replica) {
    const std::string mine = fmt::format("replica{}/", replica);
    std::string own = mine + "model/";
    const std::string* recorded = reader.meta(evaluated_key(replica));
    if (recorded == nullptr && !holds(reader, own)) break;
    if (!holds(reader, own)) own = kShared;
    if (recorded == nullptr && holds(reader, mine + "sync.")) {
      doubt = fmt::format(
          "checkpoint step-{} does not say which weights its strategy evaluates (an earlier version wrote "
          "it), and the strategy keeps some of its own: these are the weights that replica 0 trains on, "
          "which may be others than those of val/loss and weights_hash",
          reader.step());
    } else if (recorded != nullptr && recorded->empty()) {
      doubt = fmt::format(
          "checkpoint step-{} does not hold the weights that its strategy evaluates: these are the weights "
          "that replica 0 trains on, which may be others than those of val/loss and weights_hash",
          reader.step());
    }
    found.emplace_back(reader, recorded == nullptr || recorded->empty() ? own : *recorded, own);
  }
  if (found.empty() && holds(reader, kShared))
    found.emplace_back(reader, std::string(kShared), std::string(kShared));
  if (found.empty() || found.front().parameters().empty())
    fail_run(fmt::format("checkpoint step-{} holds no weights: no tensor is named model/...", reader.step()));
  return found;
}

}  // namespace tenon::train
