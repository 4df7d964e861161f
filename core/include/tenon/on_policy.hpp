// Ability of data sets ("tenon.dataset.on_policy/1"): samples that the model itself makes, as in
// reinforcement learning. Between two slots the data set draws from the live model; from then on it is pure
// in the position, as every data set is, until it draws again.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/generator.hpp>
#include <tenon/state.hpp>

#include <cstdint>
#include <span>
#include <string_view>

TENON_ABI_BEGIN

/// Called on the thread that trains, between slots; read() does not run at the same time.
class OnPolicyDataset {
 public:
  static constexpr const char* kId = "tenon.dataset.on_policy/1";
  virtual ~OnPolicyDataset();
  /// Slots from one prepare() to the next: it is called before the slots 0, period, 2 period, ... After
  /// open().
  virtual std::int64_t period() const = 0;
  /// Makes the samples of `requests`: the micro-batches of the train split that this replica reads until the
  /// next call, in that order. A sample is a function of (seed_order of open(), its number in the global
  /// order, the weights) alone, so that any number of replicas sees the same.
  virtual void prepare(std::int64_t slot, std::span<const BatchRequest> requests, Generator& generator) = 0;
  /// Name of a value of the trained graph, "node" or "node:1", that is computed for all that was prepared
  /// before any of it is trained; "" = none is.
  virtual std::string_view scored() const = 0;
  /// That value for the samples of one request, in host memory: what the trained graph itself says of them
  /// under the weights that drew them, to the bit.
  virtual void score(const BatchRequest& request, const TensorView& value) = 0;
  /// All that prepare() and score() left, so that a run goes on inside a period.
  virtual void state(StateVisitor& visitor) = 0;
};

TENON_ABI_END
