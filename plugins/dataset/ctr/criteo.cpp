// Days and halves as in DLRM's own script: a single file is split in file order into equal days, the first
// ones a row longer where the division leaves a remainder. The first half of the last day (the longer one) is
// the test set, the second half the validation set; all earlier days are the training set.
#include "criteo.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/host.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace tenon::ctr {
namespace {

constexpr std::size_t kRowsAtOnce = 8192;

std::vector<std::int64_t> table_rows(const Options& options) {
  const auto given = options.integers("rows");
  const std::int64_t cap = options.integer("row_cap");
  std::vector<std::int64_t> rows(given.begin(), given.end());
  if (rows.size() == 1) rows.resize(kCriteoCategories, rows.front());
  const bool in_range = std::all_of(rows.begin(), rows.end(),
                                    [](std::int64_t count) { return count >= 1 && count <= 2147483647; });
  if (rows.size() != kCriteoCategories || !in_range) {
    fail_config(
        fmt::format("data.criteo: rows: expected one number, or one for each of the 26 tables, from 1 to "
                    "2147483647, found [{}]",
                    fmt::join(given, ", ")));
  }
  for (std::int64_t& count : rows) count = cap > 0 ? std::min(count, cap) : count;
  return rows;
}

}  // namespace

Criteo::Criteo(const Options& options, Host& host)
    : IndexedDataset("data.criteo", options, OwnSplit{}),
      host_(host),
      paths_{std::string(options.text("path"))},
      cache_(options.text("cache")),
      normalisation_(options.text("normalisation")),
      days_(options.integer("days")),
      test_(options.text("evaluate") == "test"),
      vocabulary_(options.text("categorical") == "vocabulary"),
      max_bad_share_(options.real("max_bad_share")),
      rows_(table_rows(options)) {
  for (const std::string_view path : options.texts("further_days")) paths_.emplace_back(path);
}

void Criteo::check_faults(const CriteoCache& file, const std::string& path) const {
  const FaultCounts& faults = file.faults();
  const std::int64_t bad = faults.total(), lines = file.rows() + bad;
  if (lines == 0)
    fail_config(fmt::format("data file '{}': expected rows of Criteo's logs, found an empty file", path));
  if (bad == 0) return;
  const std::string found = fmt::format("data file '{}': {} of {} lines are no rows of Criteo's logs: {}",
                                        path, bad, lines, faults.text());
  if (2 * faults.count(RowFault::kNoLabel) > lines) {
    fail_config(found + ". It has no labels, as Kaggle's test.txt; train on train.txt");
  }
  if (file.rows() == 0) fail_config(found + ". None is left to train on");
  if (static_cast<double>(bad) > max_bad_share_ * static_cast<double>(lines)) {
    fail_config(fmt::format("{}. That is more than max_bad_share = {} allows; mend the file, or raise it",
                            found, max_bad_share_));
  }
  if (host_.rank() == 0) host_.log(LogLevel::kWarning, found + ". They are left out");
}

void Criteo::open_files() {
  for (const std::string& path : paths_) {
    files_.emplace_back(path, cache_, host_.deadline());
    check_faults(files_.back(), path);
  }
}

void Criteo::split() {
  Piece last{files_.size() - 1, 0, files_.back().rows()};
  if (files_.size() == 1) {
    // The longer days come first, so the last one is the plain quotient.
    last.count = files_[0].rows() / days_;
    last.first = files_[0].rows() - last.count;
    train_.push_back({0, 0, last.first});
  }
  for (std::size_t file = 0; file + 1 < files_.size(); ++file)
    train_.push_back({file, 0, files_[file].rows()});
  const std::int64_t first_half = last.count - last.count / 2;
  val_ = test_ ? Piece{last.file, last.first, first_half}
               : Piece{last.file, last.first + first_half, last.count - first_half};
  if (val_.count == 0) {
    fail_config(
        fmt::format("data.criteo: the last day of '{}' has {} rows; expected at least two, one to test and "
                    "one to validate on{}",
                    paths_.back(), last.count, files_.size() == 1 ? "; lower days, or take more data" : ""));
  }
}

void Criteo::learn_vocabularies() {
  // Two ids are reserved: missing and unseen.
  for (const std::int64_t rows : rows_) vocabularies_.emplace_back(std::max<std::int64_t>(rows - 2, 0));
  std::vector<CriteoRow> buffer(kRowsAtOnce);
  for (const Piece& piece : train_) {
    for (std::int64_t done = 0; done < piece.count;) {
      const auto now =
          std::span(buffer).first(std::min(piece.count - done, static_cast<std::int64_t>(kRowsAtOnce)));
      files_[piece.file].read(piece.first + done, now);
      for (const CriteoRow& row : now) {
        for (std::size_t table = 0; table < kCriteoCategories; ++table) {
          if (row.has(table)) vocabularies_[table].add(row.categories[table]);
        }
      }
      done += static_cast<std::int64_t>(now.size());
    }
  }
  for (std::size_t table = 0; table < kCriteoCategories; ++table) {
    rows_[table] = std::min(rows_[table], vocabularies_[table].size() + 2);
  }
}

/// Returns every setting besides the files that determines a sample. It is among the sources of the manifest,
/// so a run cannot resume with another choice.
std::string Criteo::recipe() const {
  return fmt::format(
      "preprocessing: normalisation = {}, categorical = {}, rows = {}, days = {}, evaluate = {}",
      normalisation_, vocabulary_ ? "vocabulary" : "hash", fmt::join(rows_, " "), days_,
      test_ ? "test" : "validation");
}

IndexedContent Criteo::load() {
  open_files();
  split();
  if (vocabulary_) learn_vocabularies();
  IndexedContent content;
  content.fields = {{"dense", DType::kF32, Shape{static_cast<std::int64_t>(kCriteoNumbers)}},
                    {"ids", DType::kI32, Shape{static_cast<std::int64_t>(kCriteoCategories)}},
                    {"labels", DType::kI32, Shape{}}};
  content.is_target = {false, false, true};
  for (std::size_t table = 0; table < kCriteoCategories; ++table) {
    content.attributes.push_back({fmt::format("rows.{}", table), rows_[table]});
  }
  for (std::size_t file = 0; file < files_.size(); ++file) {
    content.sources.push_back({paths_[file], files_[file].sha256()});
  }
  const std::string text = recipe();
  content.sources.push_back({text, sha256_of(std::as_bytes(std::span(text)))});
  for (const Piece& piece : train_) content.samples += piece.count;
  content.val_samples = val_.count;
  return content;
}

std::int32_t Criteo::id_of(std::size_t table, const CriteoRow& row) const {
  const std::int64_t rows = rows_[table];
  if (!row.has(table) || rows == 1) return 0;
  const std::uint32_t value = row.categories[table];
  if (!vocabulary_) return static_cast<std::int32_t>(1 + value % (rows - 1));
  return static_cast<std::int32_t>(vocabularies_[table].find(value) + 2);  // -1 for an unseen value
}

void Criteo::copy(bool from_val_files, std::int64_t index, std::int64_t row,
                  std::span<const TensorView> fields) const {
  const Piece* piece = from_val_files ? &val_ : train_.data();
  while (index >= piece->count) index -= piece++->count;
  const CriteoCache& file = files_[piece->file];
  CriteoRow read;
  file.read(piece->first + index, std::span(&read, 1));
  float* dense = fields[0].as<float>() + row * static_cast<std::int64_t>(kCriteoNumbers);
  std::int32_t* ids = fields[1].as<std::int32_t>() + row * static_cast<std::int64_t>(kCriteoCategories);
  const bool dlrm = normalisation_ == "dlrm";
  for (std::size_t i = 0; i < kCriteoNumbers; ++i) {
    const std::int64_t number = read.numbers[i] == kMissingNumber ? 0 : read.numbers[i];
    const std::int64_t shifted = dlrm ? std::max<std::int64_t>(number, 0) + 1 : number - file.smallest() + 2;
    dense[i] = std::log(static_cast<float>(shifted));
  }
  for (std::size_t table = 0; table < kCriteoCategories; ++table) ids[table] = id_of(table, read);
  fields[2].as<std::int32_t>()[row] = read.label();
}

}  // namespace tenon::ctr
