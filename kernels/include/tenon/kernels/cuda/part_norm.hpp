// Kernel bodies of normalisations over sets of elements, x [outer, sets, inner]: channels of a batch
// normalisation, or rows that are sharded over several ranks. Sums are f64, by slabs of a set's elements and
// then over the slabs in order (column_sums.hpp); where `inner` is 1, sets are columns and are read as such.
#pragma once

#include <cmath>
#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/column_sums.hpp>
#include <tenon/kernels/cuda/maps.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

struct Sets {
  std::int64_t outer = 0, sets = 0, inner = 0;

  TENON_BOTH std::int64_t elements() const { return outer * sets * inner; }
};
constexpr Slabs slabs_of_sets(const Sets& of) {
  return slabs_of(of.outer * of.inner, of.sets, 2048);
}

/// The first stage of sums over the elements of a set: terms(i, set, j) returns K terms of element i at place
/// j within inner. A block processes a slab of a set's elements. partial: [slabs, sets].
template <int K, class Terms>
struct SetSums {
  Sets of;
  Slabs slabs;
  Terms terms;
  Sums<double, K>* partial;
  ColumnOutputs<double, K> outputs;

  std::int64_t sums() const { return of.sets; }
  Grid mesh() const { return grid_for_rows(of.sets * slabs.count, slabs.rows, sizeof(Sums<double, K>)); }

  TENON_BOTH void operator()(const Block& block) const {
    Sums<double, K>* const sums = block.shared<Sums<double, K>>();
    const SetSums& a = *this;
    for_rows(block, of.sets * slabs.count, [&](std::int64_t unit) {
      const Divided at = divided(unit, a.slabs.count);
      const std::int64_t set = at.quotient, slab = at.remainder;
      const std::int64_t begin = slab * a.slabs.rows, all = a.of.outer * a.of.inner;
      const std::int64_t end = begin + a.slabs.rows < all ? begin + a.slabs.rows : all;
      const Sums<double, K> total = sum_over(block, sums, end - begin, [&](std::int64_t e) {
        const Divided place = divided(begin + e, a.of.inner);
        const std::int64_t i = (place.quotient * a.of.sets + set) * a.of.inner + place.remainder;
        return a.terms(i, set, place.remainder);
      });
      block.each([&](int thread) {
        if (thread != 0) return;
        if (a.slabs.count == 1) {
          a.outputs.put(set, total);
        } else {
          a.partial[slab * a.of.sets + set] = total;
        }
      });
    });
  }
};

/// The same terms for ColumnSums, of sets that are columns.
template <int K, class Terms>
struct SetsAsColumns {
  std::int64_t sets;
  Terms terms;
  TENON_BOTH Sums<double, K> operator()(std::int64_t row, std::int64_t column) const {
    return terms(row * sets + column, column, 0);
  }
};

/// Inputs of a normalisation; null for those that are 1 or 0.
template <class S>
struct PartNorm {
  using A = Arith<S>;
  Sets of;
  bool per_set;  ///< gain and bias are [sets], else [inner]
  const S* x;
  const A *gain, *bias, *mean, *rstd;

  TENON_BOTH A mean_of(std::int64_t set) const { return mean == nullptr ? A{0} : mean[set]; }
  TENON_BOTH A at(const A* vector, std::int64_t set, std::int64_t j, A otherwise) const {
    return vector == nullptr ? otherwise : vector[per_set ? set : j];
  }
  /// Gain of elements that have gains of their own; otherwise 1.
  TENON_BOTH A own_gain(std::int64_t j) const { return gain == nullptr || per_set ? A{1} : gain[j]; }
};

template <class S>
struct SetElements {
  const S* x;
  TENON_BOTH Sums<double, 1> operator()(std::int64_t i, std::int64_t, std::int64_t) const {
    return {{static_cast<double>(get(x[i]))}};
  }
};
/// (x - totals[set] / count)^2; null totals are 0.
template <class S>
struct SetSquares {
  const S* x;
  const double* totals;
  double count;
  TENON_BOTH Sums<double, 1> operator()(std::int64_t i, std::int64_t set, std::int64_t) const {
    const double d = static_cast<double>(get(x[i])) - (totals == nullptr ? 0 : totals[set] / count);
    return {{d * d}};
  }
};
/// g and g h, with h = (x - mean) rstd and g = dy times the gain of an element that has its own.
template <class S>
struct SetGradients {
  PartNorm<S> norm;
  const S* dy;
  TENON_BOTH Sums<double, 2> operator()(std::int64_t i, std::int64_t set, std::int64_t j) const {
    const double g = static_cast<double>(get(dy[i])) * static_cast<double>(norm.own_gain(j));
    const double d = static_cast<double>(get(norm.x[i])) - static_cast<double>(norm.mean_of(set));
    return {{g, g * (d * static_cast<double>(norm.rstd[set]))}};
  }
};

/// From totals: mean = sums / count and rstd = 1 / sqrt(squares / count + eps); running values, unless null,
/// are blended with the mean and the unbiased variance.
template <class A>
struct SetStatistics {
  std::int64_t sets;
  double count, eps, momentum;
  const double *sums, *squares;
  A *mean, *rstd, *running_mean, *running_variance;

  TENON_BOTH void operator()(const Block& block) const {
    const SetStatistics& a = *this;
    for_each_element(block, sets, [&](std::int64_t s) {
      const double centre = a.sums == nullptr ? 0 : a.sums[s] / a.count;
      if (a.mean != nullptr) a.mean[s] = static_cast<A>(centre);
      a.rstd[s] = static_cast<A>(1 / std::sqrt(a.squares[s] / a.count + a.eps));
      if (a.running_mean != nullptr) a.blend(a.running_mean[s], centre);
      if (a.running_variance != nullptr)
        a.blend(a.running_variance[s], a.squares[s] / (a.count > 1 ? a.count - 1 : 1));
    });
  }

 private:
  TENON_BOTH void blend(A& running, double value) const {
    running = static_cast<A>((1 - momentum) * static_cast<double>(running) + momentum * value);
  }
};

/// rstd = 1 / sqrt(variance + eps), for given values.
template <class A>
struct FixedDeviations {
  const A* variance;
  A eps;
  TENON_BOTH A operator()(std::int64_t i) const { return 1 / std::sqrt(variance[i] + eps); }
};

/// Totals as gradients of gain or bias, added to `old` unless that is null.
template <class A>
struct SumsAsParameters {
  const double* sums;
  const A* old;
  TENON_BOTH A operator()(std::int64_t i) const {
    const A sum = static_cast<A>(sums[i]);
    return old != nullptr ? old[i] + sum : sum;
  }
};

/// y[i] = map.of(set)(i, j): values that depend on the set alone are computed once where neighbouring steps
/// of a thread stay within a set.
template <class S, class Map>
struct MapSets {
  static constexpr std::int64_t kPerBlock =
      8 * kThreads;  ///< elements that a block of kThreads processes at once

  Sets of;
  S* y;
  Map map;

  static Grid grid(std::int64_t n) { return grid_for((n + 7) / 8); }

  TENON_BOTH void operator()(const Block& block) const {
    const MapSets& a = *this;
    const std::int64_t n = of.elements();
    block.each([&](int thread) {
      for (std::int64_t first = block.index() * kPerBlock; first < n; first += block.blocks() * kPerBlock) {
        const std::int64_t end = first + kPerBlock < n ? first + kPerBlock : n;
        std::int64_t known = -1;
        decltype(a.map.of(0)) state{};
        for (std::int64_t i = first + thread; i < end; i += block.threads()) {
          const Divided place = divided(i, a.of.inner);
          const std::int64_t set = divided(place.quotient, a.of.sets).remainder;
          if (set != known) state = a.map.of(set);
          known = set;
          a.y[i] = put<S>(a.map(state, i, place.remainder));
        }
      }
    });
  }
};

/// (x - mean) rstd gain + bias.
template <class S>
struct Normalised {
  using A = Arith<S>;
  PartNorm<S> norm;
  struct State {
    std::int64_t set;
    A centre, scale;
  };
  TENON_BOTH State of(std::int64_t set) const { return {set, norm.mean_of(set), norm.rstd[set]}; }
  TENON_BOTH A operator()(const State& s, std::int64_t i, std::int64_t j) const {
    const A h = (get(norm.x[i]) - s.centre) * s.scale;
    return h * norm.at(norm.gain, s.set, j, A{1}) + norm.at(norm.bias, s.set, j, A{0});
  }
};

/// rstd (g - sums / count - h products / count), times the gain of the set where it has one; `sums` are left
/// out without a mean. The result is added to `old` unless that is null.
template <class S>
struct NormalisedBackward {
  using A = Arith<S>;
  PartNorm<S> norm;
  double count;
  const S* dy;
  const double *sums, *products;
  const S* old;
  struct State {
    A centre, scale, factor, mean_g, mean_gh;
  };
  TENON_BOTH State of(std::int64_t set) const {
    const A scale = norm.rstd[set];
    return {norm.mean_of(set), scale, norm.per_set ? scale * norm.at(norm.gain, set, 0, A{1}) : scale,
            norm.mean == nullptr ? A{0} : static_cast<A>(sums[set] / count),
            static_cast<A>(products[set] / count)};
  }
  TENON_BOTH A operator()(const State& s, std::int64_t i, std::int64_t j) const {
    const A h = (get(norm.x[i]) - s.centre) * s.scale;
    const A d = s.factor * (get(dy[i]) * norm.own_gain(j) - s.mean_g - h * s.mean_gh);
    return old != nullptr ? get(old[i]) + d : d;
  }
};

// Maps over channels, as sets: biases of convolutions, and the maps after them.

/// The value of the channel.
template <class A>
struct ChannelValues {
  const A* values;
  TENON_BOTH A of(std::int64_t channel) const { return values[channel]; }
  TENON_BOTH A operator()(A value, std::int64_t, std::int64_t) const { return value; }
};

/// map(x + bias of the channel); a null bias is none.
template <class A>
struct BiasAndMap {
  const A *x, *bias;
  Map map;
  TENON_BOTH A of(std::int64_t channel) const { return bias == nullptr ? A{0} : bias[channel]; }
  TENON_BOTH A operator()(A value, std::int64_t i, std::int64_t) const {
    return mapped(map, bias == nullptr ? x[i] : x[i] + value);
  }
};

}  // namespace tenon::kernels::cuda
