// A click-through model that is a function of (seed, table, row) alone, and the samples that it labels:
// nothing is stored per row, so tables may have any size. The true logit is
//
//   bias + D sum_k c_k x_k + R / sqrt(T) sum_t e_t + P / sqrt(2 pairs) sum_p <v_2p, v_2p+1>
//
// with x_k of variance 1, sum c_k^2 = 1, and per row an effect e and a vector v of 2, uniform with variance
// 1. Tables 2p and 2p + 1 are a pair, up to `pairs` of them. A bag of several ids has the sums of their e and
// v, times sqrt(2 / L).
#pragma once

#include <tenon/random.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::ctr {

struct PlantedShape {
  std::vector<std::int64_t> rows;  ///< of each table
  std::int64_t dense = 13;
  std::int64_t bag = 1;    ///< ids per table: 1 = always one id, L = 0 to L of them
  std::int64_t pairs = 4;  ///< at most half of the tables
  double exponent = 1.5;   ///< the k-th most frequent row of a table is drawn about as k^-exponent
  double bias = -1, strength_dense = 0.5, strength_rows = 1.1, strength_pairs = 0.8;
};

/// Effect and latent vector of one row, or their sums over a bag.
struct RowTraits {
  double effect = 0;
  std::array<double, 2> latent{};

  RowTraits& operator+=(const RowTraits& other) {
    effect += other.effect;
    for (std::size_t i = 0; i < latent.size(); ++i) latent[i] += other.latent[i];
    return *this;
  }
};

/// One sample; the spans are filled.
struct PlantedSample {
  std::span<float> dense;       ///< [dense]
  std::span<std::int32_t> ids;  ///< [tables x bag], -1 = empty place
  double logit = 0;
  std::int32_t label = 0;
};

class PlantedModel {
 public:
  PlantedModel(const PlantedShape& shape, std::uint64_t seed);

  std::int64_t tables() const { return static_cast<std::int64_t>(shape_.rows.size()); }
  const PlantedShape& shape() const { return shape_; }
  /// Fills sample `index` of the stream of `key`, random_key(seed, "ctr.train") for instance. Pure; allocates
  /// nothing.
  void sample(RandomKey key, std::uint64_t index, PlantedSample& out) const;
  /// Returns the true logit of any inputs.
  double logit(std::span<const float> dense, std::span<const std::int32_t> ids) const;
  RowTraits traits(std::int64_t table, std::int64_t row) const;
  /// Returns the row of a table for a uniform number in [0, 1).
  std::int64_t row_of(std::int64_t table, double uniform) const;

 private:
  /// Maps frequency ranks to rows: (rank multiplier + offset) mod rows.
  struct Table {
    std::int64_t rows = 1;
    double reach = 0;  ///< (rows + 1)^(1 - exponent) - 1, or log(rows + 1) for exponent 1
    std::uint64_t multiplier = 1, offset = 0;
  };

  PlantedShape shape_;
  RandomKey key_;
  std::vector<Table> tables_;
  std::vector<double> dense_weights_;
  double rows_scale_, pairs_scale_, bag_scale_;
};

}  // namespace tenon::ctr
