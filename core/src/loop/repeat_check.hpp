// Computes the first slot's gradients twice: code that reads memory that it did not write, or depends on the
// timing of threads, seldom gives the same bits again. The first computation has no effect: the second
// overwrites its gradients, and the state of sites is put back.
#pragma once

#include <tenon/device.hpp>
#include <tenon/executor.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

/// A copy of the state of an executor's sites, for passes that leave no trace.
class SiteStates {
 public:
  /// References outlive the object.
  SiteStates(Executor& executor, Device& device) : executor_(executor), device_(device) {}

  void keep();
  /// Makes the state what keep() found.
  void put_back();

 private:
  class Visitor;
  void visit(bool restore);

  Executor& executor_;
  Device& device_;
  std::vector<std::vector<std::byte>> tensors_;  ///< in the order in which the executor shows them
};

class RepeatCheck {
 public:
  /// References outlive the object.
  RepeatCheck(Executor& executor, const ParameterSet& gradients, Device& device)
      : executor_(executor), gradients_(gradients), device_(device), sites_(executor, device) {}

  /// Before the first computation.
  void begin();
  /// After it: keeps the digests of its gradients and puts back what begin() found.
  void first_done();
  /// After the second, before the gradients go anywhere: the first parameter whose gradient has other bits,
  /// "" if none.
  std::string second_done();
  /// Operands that the first computation converted, which are none of the run's.
  const std::vector<std::pair<std::string, std::int64_t>>& operands() const { return operands_; }

 private:
  using Digests = std::vector<std::pair<std::string, std::string>>;  ///< by parameter
  Digests digests();

  Executor& executor_;
  const ParameterSet& gradients_;
  Device& device_;
  SiteStates sites_;
  std::vector<std::byte> host_;
  std::vector<std::pair<std::string, std::int64_t>> operands_;
  Digests first_;
};

}  // namespace tenon::train
