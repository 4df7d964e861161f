// Training and validation samples come from two streams of the same model.
#include "synthetic_ctr.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

namespace tenon::ctr {
namespace {

std::vector<std::int64_t> planted_rows(const Options& options) {
  const auto given = options.integers("rows");
  const std::size_t tables = options.integer("tables");
  if (given.size() != 1 && given.size() != tables) {
    fail_config(fmt::format(
        "data.synthetic_ctr: rows: expected one number, or one for each of the {} tables, found {}", tables,
        given.size()));
  }
  std::vector<std::int64_t> rows(given.begin(), given.end());
  for (const std::int64_t count : rows) {
    if (count < 1 || count > 2147483647) {
      fail_config(
          fmt::format("data.synthetic_ctr: rows: expected numbers from 1 to 2147483647, found {}", count));
    }
  }
  rows.resize(tables, rows.front());
  return rows;
}

PlantedShape shape_from(const Options& options) {
  return {.rows = planted_rows(options),
          .dense = options.integer("dense"),
          .bag = options.integer("bag"),
          .pairs = options.integer("pairs"),
          .exponent = options.real("exponent"),
          .bias = options.real("bias"),
          .strength_dense = options.real("strength_dense"),
          .strength_rows = options.real("strength_rows"),
          .strength_pairs = options.real("strength_pairs")};
}

/// Returns every setting that determines the samples, so that a resumed run detects other data.
std::string recipe(const PlantedShape& shape, std::uint64_t seed) {
  return fmt::format(
      "planted click-through model: data_seed {}, dense {}, bag {}, pairs {}, exponent {}, bias {}, "
      "strengths {} {} "
      "{}, "
      "rows {}",
      seed, shape.dense, shape.bag, shape.pairs, shape.exponent, shape.bias, shape.strength_dense,
      shape.strength_rows, shape.strength_pairs, fmt::join(shape.rows, " "));
}

}  // namespace

SyntheticCtr::SyntheticCtr(const Options& options)
    : IndexedDataset("data.synthetic_ctr", options, OwnSplit{}),
      seed_(static_cast<std::uint64_t>(options.integer("data_seed"))),
      model_(shape_from(options), seed_),
      train_key_(random_key(seed_, "ctr.train")),
      val_key_(random_key(seed_, "ctr.val")),
      samples_(options.integer("samples")),
      val_samples_(options.integer("val_samples")) {}

IndexedContent SyntheticCtr::load() {
  const PlantedShape& shape = model_.shape();
  IndexedContent content;
  content.fields = {
      {"dense", DType::kF32, Shape{shape.dense}},
      {"ids", DType::kI32, shape.bag == 1 ? Shape{model_.tables()} : Shape{model_.tables(), shape.bag}},
      {"labels", DType::kI32, Shape{}},
      {"planted", DType::kF32, Shape{}}};
  content.is_target = {false, false, true, false};
  for (std::size_t table = 0; table < shape.rows.size(); ++table) {
    content.attributes.push_back({fmt::format("rows.{}", table), shape.rows[table]});
  }
  const std::string text = recipe(shape, seed_);
  content.sources.push_back({text, sha256_of(std::as_bytes(std::span(text)))});
  content.samples = samples_;
  content.val_samples = val_samples_;
  return content;
}

void SyntheticCtr::copy(bool from_val_files, std::int64_t index, std::int64_t row,
                        std::span<const TensorView> fields) const {
  const std::size_t dense = model_.shape().dense,
                    ids = static_cast<std::size_t>(model_.tables() * model_.shape().bag),
                    to = static_cast<std::size_t>(row);
  PlantedSample sample{.dense = {fields[0].as<float>() + to * dense, dense},
                       .ids = {fields[1].as<std::int32_t>() + to * ids, ids}};
  model_.sample(from_val_files ? val_key_ : train_key_, static_cast<std::uint64_t>(index), sample);
  fields[2].as<std::int32_t>()[to] = sample.label;
  fields[3].as<float>()[to] = static_cast<float>(sample.logit);
}

}  // namespace tenon::ctr
