// Data set `criteo` (contract dataset/1): Criteo's click logs as they are published. Fields: dense f32 [13],
// ids i32 [26], labels i32 []. Numbers are normalised and categories become ids when a row is read.
#pragma once

#include "criteo_cache.hpp"

#include <tenon/host.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/indexed_dataset.hpp>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace tenon::ctr {

/// Numbers 32-bit values in order of first appearance, up to a limit. Open addressing, 16 to 32 bytes per
/// value. Lookup is thread-safe once no more values are added.
class Vocabulary {
 public:
  explicit Vocabulary(std::int64_t limit) : limit_(limit), slots_(16) {}

  std::int64_t size() const { return size_; }
  /// Numbers `value` unless it already has a number or the limit is reached.
  void add(std::uint32_t value) {
    if (size_ == limit_) return;
    if (2 * size_ == static_cast<std::int64_t>(slots_.size())) grow();
    Slot& slot = slots_[place(slots_, value)];
    if (slot.number_plus_one == 0) slot = {value, static_cast<std::uint32_t>(++size_)};
  }
  /// Returns the number of a value, from 0; -1 for a value without a number.
  std::int64_t find(std::uint32_t value) const {
    return std::int64_t{slots_[place(slots_, value)].number_plus_one} - 1;
  }

 private:
  struct Slot {
    std::uint32_t value = 0, number_plus_one = 0;
  };

  /// Returns the slot of a value, or the empty slot where it belongs. The table size is a power of two, half
  /// of it empty.
  static std::size_t place(const std::vector<Slot>& slots, std::uint32_t value) {
    // Fibonacci hashing: the top bits of value times 2^64 / golden ratio.
    const std::size_t mask = slots.size() - 1;
    std::size_t i = (value + std::uint64_t{1}) * 0x9E3779B97F4A7C15u >> (64 - std::countr_zero(slots.size()));
    while (slots[i].number_plus_one != 0 && slots[i].value != value) i = (i + 1) & mask;
    return i;
  }
  void grow() {
    std::vector<Slot> larger(2 * slots_.size());
    for (const Slot& slot : slots_) {
      if (slot.number_plus_one != 0) larger[place(larger, slot.value)] = slot;
    }
    slots_ = std::move(larger);
  }

  std::int64_t limit_, size_ = 0;
  std::vector<Slot> slots_;
};

class Criteo final : public IndexedDataset {
 public:
  static constexpr const char* kCategoricals[] = {"hash", "vocabulary", nullptr};
  static constexpr const char* kNormalisations[] = {"dlrm", "torchrec", nullptr};
  static constexpr const char* kEvaluations[] = {"validation", "test", nullptr};
  static constexpr const char* kKaggleRows =
      "[1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, "
      "5461306, 10, "
      "5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572]";
  static constexpr OptionSpec kOptions[] = {
      option::path("path", nullptr)
          .mandatory()
          .doc_text("tab-separated rows with labels, plain or gzip: train.txt of Kaggle, or the first day"),
      option::paths("further_days", "[]")
          .doc_text("the files of the days after the first, in order; the last one is held out"),
      option::integer("days", "7")
          .between(2, 1000000)
          .doc_text("equal parts into which a single file is split; the last one is held out"),
      option::text("evaluate", "\"validation\"")
          .one_of(kEvaluations)
          .doc_text("half of the last day used for validation: test = the first half, only for the final "
                    "figure; validation = the second"),
      option::text("categorical", "\"hash\"")
          .one_of(kCategoricals)
          .doc_text("hash: 0 = missing, 1 + value modulo (rows - 1); vocabulary: 0 = missing, 1 = not in the "
                    "train part, then by first appearance there"),
      option::integers("rows", kKaggleRows)
          .doc_text(
              "rows of each of the 26 tables, or one number for all; for a vocabulary its largest size"),
      option::integer("row_cap", "0").between(0, 2147483647).doc_text("largest number of rows; 0 = no cap"),
      option::text("normalisation", "\"dlrm\"")
          .one_of(kNormalisations)
          .doc_text("transform of the numbers x: dlrm: log(max(x, 0) + 1), missing = 0; torchrec: log(x - m "
                    "+ 2), missing = 0, m the smallest number of the file"),
      option::real("max_bad_share", "0.001")
          .between(0, 1)
          .doc_text(
              "share of malformed lines of a file above which it is refused; they are left out and logged"),
      option::text("cache", "\"\"")
          .doc_text("folder for the packed rows, 160 bytes each; empty = tenon-cache beside each file"),
      batch_option("2048"),
      order_option(),
  };
  static constexpr ComponentInfo kInfo{
      .id = "criteo",
      .summary = "Criteo's click logs: 13 numbers, 26 categories, plain or gzip",
      .options = kOptions};

  Criteo(const Options& options, Host& host);

 private:
  /// Rows [first, first + count) of a file.
  struct Piece {
    std::size_t file = 0;
    std::int64_t first = 0, count = 0;
  };

  IndexedContent load() override;
  void copy(bool from_val_files, std::int64_t index, std::int64_t row,
            std::span<const TensorView> fields) const override;
  void open_files();
  void check_faults(const CriteoCache& file, const std::string& path) const;
  void split();
  void learn_vocabularies();
  std::int32_t id_of(std::size_t table, const CriteoRow& row) const;
  std::string recipe() const;

  Host& host_;
  std::vector<std::string> paths_;
  std::string cache_, normalisation_;
  std::int64_t days_;
  bool test_, vocabulary_;
  double max_bad_share_;
  std::vector<std::int64_t> rows_;
  std::vector<CriteoCache> files_;
  std::vector<Piece> train_;
  Piece val_;
  std::vector<Vocabulary> vocabularies_;
};

}  // namespace tenon::ctr
