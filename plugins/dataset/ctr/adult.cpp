// dense = (t(x) - mean t) / deviation of t over the train rows, t = log(1 + x) for the two capital fields and
// x for the others. The held-out rows are the last places of a permutation whose key depends on no seed.
#include "adult.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/sdk/permutation.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::ctr {
namespace {

double transformed(std::size_t place, std::int32_t number) {
  const auto x = static_cast<double>(number);
  return place == kAdultGain || place == kAdultLoss ? std::log1p(x) : x;
}

/// Returns the distinct quantiles k / buckets of `numbers`, k from 1, that are above at least one number.
std::vector<std::int32_t> quantiles(std::vector<std::int32_t> numbers, std::int64_t buckets) {
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::int32_t> bounds;
  for (std::int64_t k = 1; k < buckets; ++k) {
    const std::size_t place = k * static_cast<std::int64_t>(numbers.size()) / buckets;
    const std::int32_t bound = numbers[place];
    if (bound > numbers.front() && (bounds.empty() || bound > bounds.back())) bounds.push_back(bound);
  }
  return bounds;
}

}  // namespace

Adult::Adult(const Options& options)
    : IndexedDataset("data.adult", options, OwnSplit{}),
      path_(options.text("path")),
      test_path_(options.text("test_path")),
      test_(options.text("evaluate") == "test"),
      val_fraction_(options.real("val_fraction")),
      buckets_(options.integer("buckets")) {}

void Adult::learn(std::span<const AdultRow> train) {
  const auto count = static_cast<double>(train.size());
  for (std::size_t place = 0; place < kAdultNumbers; ++place) {
    double sum = 0, squares = 0;
    std::vector<std::int32_t> numbers;
    for (const AdultRow& row : train) {
      sum += transformed(place, row.numbers[place]);
      numbers.push_back(row.numbers[place]);
    }
    mean_[place] = sum / count;
    for (const AdultRow& row : train) {
      const double away = transformed(place, row.numbers[place]) - mean_[place];
      squares += away * away;
    }
    // A constant column carries no information; dividing by 1 keeps it at zero.
    deviation_[place] = squares > 0 ? std::sqrt(squares / count) : 1;
    bounds_[place] = quantiles(std::move(numbers), buckets_);
  }
}

Adult::Part Adult::encode(std::span<const AdultRow> rows) const {
  Part part;
  for (const AdultRow& row : rows) {
    for (std::size_t place = 0; place < kAdultNumbers; ++place) {
      const double value = transformed(place, row.numbers[place]);
      part.dense.push_back(static_cast<float>((value - mean_[place]) / deviation_[place]));
    }
    part.ids.insert(part.ids.end(), row.ids.begin(), row.ids.end());
    for (std::size_t place = 0; buckets_ > 0 && place < kAdultNumbers; ++place) {
      const auto& bounds = bounds_[place];
      const auto above = std::upper_bound(bounds.begin(), bounds.end(), row.numbers[place]);
      part.ids.push_back(static_cast<std::int32_t>(above - bounds.begin()));
    }
    part.labels.push_back(row.label);
  }
  return part;
}

IndexedContent Adult::load() {
  const std::vector<AdultRow> rows = read_adult(path_);
  std::vector<AdultRow> train, val;
  if (test_) {
    train = rows;
    val = read_adult(test_path_);
  } else {
    const auto held = std::llround(static_cast<double>(rows.size()) * val_fraction_);
    const std::size_t trained = rows.size() - static_cast<std::size_t>(held);
    const Permutation mix(rows.size(), random_key(0, "split"), 0);
    for (std::size_t place = 0; place < rows.size(); ++place) {
      (place < trained ? train : val).push_back(rows[mix(place)]);
    }
    if (val.empty() || train.empty()) {
      fail_config(fmt::format(
          "data.adult: '{}' has {} rows, and val_fraction = {} leaves {} to train on and {} to validate on; "
          "both need at least one",
          path_, rows.size(), val_fraction_, train.size(), val.size()));
    }
  }
  learn(train);
  train_ = encode(train);
  val_ = encode(val);

  IndexedContent content;
  for (std::size_t table = 0; table < kAdultCategories; ++table) {
    content.attributes.push_back(
        {fmt::format("rows.{}", table), static_cast<std::int64_t>(adult_values(table).size()) + 1});
  }
  for (std::size_t place = 0; buckets_ > 0 && place < kAdultNumbers; ++place) {
    content.attributes.push_back({fmt::format("rows.{}", kAdultCategories + place),
                                  static_cast<std::int64_t>(bounds_[place].size()) + 1});
  }
  tables_ = content.attributes.size();
  const std::unique_ptr<FileSystem> files = make_posix_files();
  content.sources.push_back({path_, sha256_of_file(*files, path_)});
  if (test_) content.sources.push_back({test_path_, sha256_of_file(*files, test_path_)});
  // Statistics and buckets come from the train rows, so a run cannot resume with others.
  const std::string recipe =
      test_ ? fmt::format("preprocessing: evaluate = test, buckets = {}", buckets_)
            : fmt::format("preprocessing: evaluate = held_out, val_fraction = {}, buckets = {}",
                          val_fraction_, buckets_);
  content.sources.push_back({recipe, sha256_of(std::as_bytes(std::span(recipe)))});
  content.fields = {{"dense", DType::kF32, Shape{static_cast<std::int64_t>(kAdultNumbers)}},
                    {"ids", DType::kI32, Shape{static_cast<std::int64_t>(tables_)}},
                    {"labels", DType::kI32, Shape{}}};
  content.is_target = {false, false, true};
  content.samples = static_cast<std::int64_t>(train.size());
  content.val_samples = static_cast<std::int64_t>(val.size());
  return content;
}

void Adult::copy(bool from_val_files, std::int64_t index, std::int64_t row,
                 std::span<const TensorView> fields) const {
  const Part& part = from_val_files ? val_ : train_;
  const auto from = static_cast<std::size_t>(index), to = static_cast<std::size_t>(row);
  std::copy_n(&part.dense[from * kAdultNumbers], kAdultNumbers, fields[0].as<float>() + to * kAdultNumbers);
  std::copy_n(&part.ids[from * tables_], tables_, fields[1].as<std::int32_t>() + to * tables_);
  fields[2].as<std::int32_t>()[to] = part.labels[from];
}

}  // namespace tenon::ctr
