// Reads batches from a data set into an executor's inputs. The data set writes its declared types in host
// memory; the graph needs the type of its activations in the device's memory. Where both agree nothing is
// copied. Allocates at construction only.
#pragma once

#include "loop/parts.hpp"

#include <tenon/executor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tenon::train {

class BatchReader {
 public:
  /// Fills views of the declared fields, in host memory.
  using Read = std::function<void(const BatchRequest& request, std::span<const TensorView> fields)>;

  /// All outlive this.
  BatchReader(Parts& parts, Executor& executor);
  /// For graphs that are not those of a rank.
  BatchReader(Read read, const DataInfo& data, Device& device, Executor& executor);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  void read(const BatchRequest& request);
  /// The first value of the batch that was read last which is not finite, where sample 0 of it is number
  /// `first` of the order: "field 'x' has NaN in sample 2 of the batch (number 66 in the order of samples),
  /// element 7"; "" if there is none.
  std::string non_finite(std::int64_t first) const;

 private:
  struct Field {
    TensorView host;       ///< what the data set writes: the input itself, or `memory`
    TensorView on_device;  ///< the same values before they are converted; empty where not needed
    std::vector<std::byte> memory;
  };

  Read read_;
  Device& device_;
  Executor& executor_;
  std::vector<DataField> declared_;
  std::vector<Field> fields_;
  std::vector<TensorView> views_;
};

}  // namespace tenon::train
