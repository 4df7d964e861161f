// Weights of a stored model in device memory, for the graphs of one rank that read them: each parameter is
// there once, however many nodes and workers need it.
#pragma once

#include <tenon/executor.hpp>
#include <tenon/shared_objects.hpp>
#include <tenon/stored_model.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::frozen {

class SharedWeights final : public SharedObject {
 public:
  explicit SharedWeights(Device& device) : device_(device) {}

  /// Sets of one parameter each, in the order of `parameters`; loads those that are not loaded yet. They live
  /// as long as this. Throws Error(kConfig) that lists every parameter which `model` lacks, or has in another
  /// shape.
  std::vector<ParameterSet*> load(StoredModel& model, const std::vector<ParameterInfo>& parameters);
  /// Size of all parameters that were loaded so far.
  std::size_t bytes() const;

 private:
  std::unique_ptr<ParameterSet> loaded(StoredModel& model, const StoredTensor& stored,
                                       const ParameterInfo& info);

  Device& device_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<ParameterSet>> sets_;  ///< by name, dtype and shard
  std::size_t bytes_ = 0;
};

/// The parameters of one graph among them, in its order. Nothing writes to it.
class FrozenSet final : public ParameterSet {
 public:
  FrozenSet(std::shared_ptr<SharedObject> weights, std::string name, std::vector<ParameterInfo> parameters,
            std::vector<ParameterSet*> sets)
      : weights_(std::move(weights)),
        name_(std::move(name)),
        parameters_(std::move(parameters)),
        sets_(std::move(sets)) {}

  std::string_view name() const override { return name_; }
  std::span<const ParameterInfo> parameters() const override { return parameters_; }
  int arenas() const override { return 0; }
  TensorView arena(int) const override { return {}; }
  TensorView tensor(int parameter) const override { return sets_.at(parameter)->tensor(0); }
  RowTable* table(int parameter) const override { return sets_.at(parameter)->table(0); }
  std::uint64_t version(int parameter) const override { return sets_.at(parameter)->version(0); }
  void touch(int) override {}

 private:
  std::shared_ptr<SharedObject> weights_;  ///< holds what sets_ points to; shared by all graphs of the rank
  std::string name_;
  std::vector<ParameterInfo> parameters_;
  std::vector<ParameterSet*> sets_;
};

}  // namespace tenon::frozen
