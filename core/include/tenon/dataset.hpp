// Contract `dataset/1`: samples in a global order that depends on (seed_order, epoch, index) alone. Reading
// is a pure function of the position, so resume is exact at any world size and needs only the position.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

enum class Split : std::uint8_t { kTrain = 0, kVal = 1 };
std::string_view split_name(Split split) noexcept;  // "train", "val"

/// A named tensor of every sample; a batch of it has shape [batch, ...shape].
struct DataField {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  ///< of one sample
  /// A value v of this field stands for offset + scale * v, where a data set has standardised it.
  double offset = 0, scale = 1;
};

struct DataAttribute {
  std::string name;  ///< "vocabulary", "classes"
  std::int64_t value = 0;
};

/// A file that the data came from, for the manifest.
struct DataSource {
  std::string path;
  std::string sha256;
};

struct DataInfo {
  std::vector<DataField> fields;
  std::vector<DataAttribute> attributes;
  std::vector<DataSource> sources;
  std::int64_t train_samples = 0;  ///< per epoch
  std::int64_t val_samples = 0;
  std::int64_t tokens_per_sample = 1;  ///< what `tokens` counts; 1 for data without tokens
  /// Bytes of text per target, mean over the validation split, by which a loss is given per byte; 0 = not
  /// text.
  double bytes_per_target = 0;
};

/// Samples [first, first + count) of the global order of a split. The core derives `first` from the slot,
/// replica and micro-batch; beyond the end of the train split a new epoch begins.
struct BatchRequest {
  Split split = Split::kTrain;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

class Dataset {
 public:
  using Interface = Dataset;
  static constexpr const char* kKind = "dataset/1";
  virtual ~Dataset();
  /// Opens and checks files; called once. `batch` is the number of samples per micro-batch.
  virtual void open(std::uint64_t seed_order) = 0;
  virtual std::int64_t batch() const = 0;
  virtual const DataInfo& info() const = 0;
  /// Fills one tensor per field, [batch, ...]. If count < batch (it may be 0) the remaining samples are
  /// padding that no loss counts (targets -1). Thread-safe: workers and prefetchers call it concurrently.
  /// Host memory; allocates nothing.
  virtual void read(const BatchRequest& request, std::span<const TensorView> fields) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
