// Ranks follow the continuous power law on [1, rows + 1) by its inverse distribution, so no table of
// probabilities is kept. Each draw has its own counter (step, index); the steps of a sample's stream:
//   0: label    1 + k: number k    2^32 + t: length of bag t    2^33 + t bag + i: id i of table t
// and of the model's stream: 0: offset of table t    1 + t: traits of row (index)    2^32: weight of number k
#include "planted.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::ctr {
namespace {

constexpr std::uint64_t kLengthStep = std::uint64_t{1} << 32, kIdStep = std::uint64_t{2} << 32;
constexpr std::uint64_t kWeightStep = std::uint64_t{1} << 32;
constexpr double kGolden = 0.61803398874989485;

/// Uniform with mean 0 and variance 1.
double centred(std::uint32_t word) {
  constexpr double kSqrt3 = 1.7320508075688773;
  return kSqrt3 * ((static_cast<double>(word) + 0.5) * 0x1p-31 - 1);
}

/// The sum of four uniform numbers, of variance 1: nearly normal, at a tenth of the time of Box-Muller.
float bell(const std::array<std::uint32_t, 4>& words) {
  constexpr double kScale = 0.86602540378443865 * 0x1p-31;  // the sum itself has variance 4 / 3
  const std::uint64_t sum = std::uint64_t{words[0]} + words[1] + words[2] + words[3] + 2;
  return static_cast<float>(kScale * (static_cast<double>(sum) - 0x1p33));
}

}  // namespace

PlantedModel::PlantedModel(const PlantedShape& shape, std::uint64_t seed)
    : shape_(shape), key_(random_key(seed, "ctr.model")) {
  shape_.pairs = std::min(shape.pairs, tables() / 2);
  rows_scale_ = shape.strength_rows / std::sqrt(static_cast<double>(shape.rows.size()));
  pairs_scale_ =
      shape_.pairs > 0 ? shape.strength_pairs / std::sqrt(2 * static_cast<double>(shape_.pairs)) : 0;
  bag_scale_ = shape.bag > 1 ? std::sqrt(2 / static_cast<double>(shape.bag)) : 1;
  for (std::size_t t = 0; t < shape.rows.size(); ++t) {
    Table table;
    table.rows = shape.rows[t];
    const double end = static_cast<double>(table.rows) + 1;
    table.reach = shape.exponent == 1 ? std::log(end) : std::pow(end, 1 - shape.exponent) - 1;
    const auto rows = static_cast<std::uint64_t>(table.rows);
    table.multiplier = static_cast<std::uint64_t>(static_cast<double>(rows) * kGolden) + 1;
    while (std::gcd(table.multiplier, rows) != 1) ++table.multiplier;
    table.offset = random_below(key_, 0, t, rows);
    tables_.push_back(table);
  }
  double squares = 0;
  for (std::int64_t k = 0; k < shape.dense; ++k) {
    dense_weights_.push_back(centred(random_words(key_, kWeightStep, static_cast<std::uint64_t>(k))[0]));
    squares += dense_weights_.back() * dense_weights_.back();
  }
  for (double& weight : dense_weights_) weight *= shape.strength_dense / std::sqrt(squares);
}

std::int64_t PlantedModel::row_of(std::int64_t table, double uniform) const {
  const Table& t = tables_[table];
  const double base = uniform * t.reach;
  // The default exponent 1.5 asks for the power -2, which needs no library.
  const double place = shape_.exponent == 1     ? std::exp(base)
                       : shape_.exponent == 1.5 ? 1 / ((1 + base) * (1 + base))
                                                : std::pow(1 + base, 1 / (1 - shape_.exponent));
  // Rounding may reach past either end.
  const std::int64_t rank = std::clamp(static_cast<std::int64_t>(place) - 1, std::int64_t{0}, t.rows - 1);
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(rank) * t.multiplier + t.offset) %
                                   static_cast<std::uint64_t>(t.rows));
}

RowTraits PlantedModel::traits(std::int64_t table, std::int64_t row) const {
  const auto words =
      random_words(key_, 1 + static_cast<std::uint64_t>(table), static_cast<std::uint64_t>(row));
  return {centred(words[0]), {centred(words[1]), centred(words[2])}};
}

double PlantedModel::logit(std::span<const float> dense, std::span<const std::int32_t> ids) const {
  double numbers = 0, effects = 0, pairs = 0;
  for (std::size_t k = 0; k < dense.size(); ++k) numbers += dense_weights_[k] * dense[k];
  RowTraits previous;
  for (std::int64_t t = 0; t < tables(); ++t) {
    RowTraits bag;
    for (std::int64_t i = 0; i < shape_.bag; ++i) {
      const std::int32_t id = ids[t * shape_.bag + i];
      if (id >= 0) bag += traits(t, id);
    }
    effects += bag_scale_ * bag.effect;
    if (t % 2 == 1 && t < 2 * shape_.pairs) {
      double product = 0;
      for (std::size_t i = 0; i < bag.latent.size(); ++i) product += bag.latent[i] * previous.latent[i];
      pairs += bag_scale_ * bag_scale_ * product;
    }
    previous = bag;
  }
  return shape_.bias + numbers + rows_scale_ * effects + pairs_scale_ * pairs;
}

void PlantedModel::sample(RandomKey key, std::uint64_t index, PlantedSample& out) const {
  for (std::size_t k = 0; k < out.dense.size(); ++k) {
    out.dense[k] = bell(random_words(key, 1 + k, index));
  }
  for (std::int64_t t = 0; t < tables(); ++t) {
    const auto table = static_cast<std::uint64_t>(t), places = static_cast<std::uint64_t>(shape_.bag);
    const std::uint64_t length = places == 1 ? 1 : random_below(key, kLengthStep + table, index, places + 1);
    for (std::uint64_t i = 0; i < places; ++i) {
      const double uniform = i < length ? random_uniform(key, kIdStep + table * places + i, index) : 0;
      out.ids[table * places + i] = i < length ? static_cast<std::int32_t>(row_of(t, uniform)) : -1;
    }
  }
  out.logit = logit(out.dense, out.ids);
  out.label = random_uniform(key, 0, index) * (1 + std::exp(-out.logit)) < 1 ? 1 : 0;
}

}  // namespace tenon::ctr
