// A base for data sets whose samples are addressed one by one. It implements the split, the order, the
// padding and the checks; the derived class locates the samples. Contract dataset/1.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/options.hpp>
#include <tenon/random.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

TENON_ABI_BEGIN

/// The order of the train samples. Pure in (seed_order, epoch, index).
enum class SampleOrder : std::uint8_t {
  kShuffled,    ///< every sample once per epoch, in another order each time
  kSequential,  ///< in the order of the file
  kRandom,      ///< drawn independently for every place, with replacement
};

/// Description of the files by the derived class.
struct IndexedContent {
  std::vector<DataField> fields;
  std::vector<DataAttribute> attributes;
  std::vector<DataSource> sources;
  std::int64_t samples = 0;       ///< of the main files
  std::int64_t val_samples = -1;  ///< in files of their own; -1: a share of the main files is held out
  std::vector<bool> is_target;    ///< per field: padding must not count in any loss
};

class IndexedDataset : public Dataset {
 public:
  static constexpr auto kOrders = option::choice<SampleOrder>({{"shuffled", SampleOrder::kShuffled},
                                                               {"sequential", SampleOrder::kSequential},
                                                               {"random", SampleOrder::kRandom}});
  static constexpr const char* kSplits[] = {"mixed", "tail", nullptr};
  /// Options of every such data set; a derived class lists them in its kOptions.
  static constexpr OptionSpec batch_option(const char* default_toml) {
    return option::integer("batch", default_toml)
        .between(1, 1 << 20)
        .in_unit("samples")
        .doc_text("samples per micro-batch");
  }
  static constexpr OptionSpec order_option() {
    return option::text("order", "\"shuffled\"")
        .one_of(kOrders)
        .doc_text(
            "shuffled: every sample once per epoch; sequential: in file order; random: drawn with "
            "replacement");
  }
  static constexpr OptionSpec val_fraction_option(const char* default_toml) {
    return option::real("val_fraction", default_toml)
        .between(0, 0.9)
        .doc_text("share of the samples that is held out for validation; unused with validation files");
  }
  static constexpr OptionSpec split_option() {
    return option::text("split", "\"mixed\"")
        .one_of(kSplits)
        .doc_text(
            "which samples are held out: mixed = a fixed choice from all of the file, the same for every "
            "seed; tail = the last ones");
  }

  ~IndexedDataset() override;
  void open(std::uint64_t seed_order) final;
  std::int64_t batch() const final;
  const DataInfo& info() const final;
  void read(const BatchRequest& request, std::span<const TensorView> fields) final;
  void* query(std::string_view interface_id) override;

 protected:
  /// Reads the four options above. `owner` names the component in messages: "data.mnist".
  IndexedDataset(std::string owner, const Options& options);
  /// For a data set that chooses its held-out samples: only `batch` and `order` are read, and load() must set
  /// val_samples.
  struct OwnSplit {};
  IndexedDataset(std::string owner, const Options& options, OwnSplit);

  /// Called at the end of open(), when the train samples are known; `info` is what the data set will report.
  virtual void opened(DataInfo& info);
  /// Index in the main files of train sample `i` of train_samples; ascending in i with `order =
  /// "sequential"`, else in an unspecified order.
  std::int64_t train_index(std::int64_t i) const;

 private:
  /// Opens and checks the files; called once, by open().
  virtual IndexedContent load() = 0;
  /// Writes sample `index` of the main files, or of the validation files, into row `row` of every field.
  /// Called concurrently; allocates nothing. The views are checked.
  virtual void copy(bool from_val_files, std::int64_t index, std::int64_t row,
                    std::span<const TensorView> fields) const = 0;

  void divide(const IndexedContent& content);
  void check_request(const BatchRequest& request, std::span<const TensorView> fields) const;
  std::int64_t train_place(std::int64_t sample) const;
  std::int64_t place_in_file(std::int64_t place) const;
  void pad(std::int64_t rows, std::span<const TensorView> fields) const;

  std::string owner_;
  std::int64_t batch_;
  double val_fraction_;
  bool mixed_, val_files_ = false;
  SampleOrder order_;
  RandomKey order_key_, split_key_;
  std::int64_t samples_ = 0;
  std::vector<std::int64_t>
      held_out_;  ///< ascending; only if samples around them are read in the file's order
  std::vector<bool> is_target_;
  DataInfo info_;
};

TENON_ABI_END
