// Divergences between a teacher's and a student's distribution over a vocabulary, and distances between their
// states: the arguments, the choice of the teacher's k likeliest classes, and the terms of one element.
// Header alone, so that hosts and GPUs compute the same formulas; A is float or double.
//
// Written with log-probabilities a_j = teacher_j / T - lse and b_j = student_j / T - lse. Equal bits of both
// rows give equal a and b, hence losses and gradients of exactly zero.
#pragma once

#include <tenon/kernels/types.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tenon::kernels {

inline constexpr std::int64_t kDivergenceStatistics = 8;

template <class A>
struct DivergenceArgs {
  std::int64_t rows = 0, columns = 0;
  std::int64_t top_k = 0;  ///< 0: all columns; else below `columns`, and one class of all others
  bool reverse = false;    ///< KL(student || teacher); not with top_k
  A inverse_temperature = 1;
  const A* student = nullptr;
  const A* teacher = nullptr;
  const std::int32_t* targets = nullptr;
  A* statistics = nullptr;  ///< [rows, kDivergenceStatistics]
  A* loss = nullptr;        ///< [rows]
  A* dstudent = nullptr;
  A scale = 1;
};

/// What the forward leaves of a row, in this order in its statistics.
template <class A>
struct DivergenceRow {
  A student_lse, teacher_lse;  ///< of logits / T
  A value;                     ///< the divergence
  A rest;                      ///< log-odds of the class of all others: teacher's log-probability - student's
  A threshold;                 ///< smallest of the teacher's k largest logits
  A last_tie;                  ///< the last column that counts among those equal to the threshold

  TENON_BOTH static DivergenceRow read(const A* from) {
    return {from[0], from[1], from[2], from[3], from[4], from[5]};
  }
  TENON_BOTH void write(A* to) const {
    to[0] = student_lse, to[1] = teacher_lse, to[2] = value, to[3] = rest, to[4] = threshold;
    to[5] = last_tie, to[6] = 0, to[7] = 0;
  }
  /// Whether column j is among the k likeliest.
  TENON_BOTH bool chosen(A logit, std::int64_t j) const {
    return logit > threshold || (logit == threshold && static_cast<A>(j) <= last_tie);
  }
};

/// p (a - b), and 0 where p is 0, whatever the logarithms are.
template <class A>
TENON_BOTH inline A divergence_term(A p, A a, A b) {
  return p == 0 ? A{0} : p * (a - b);
}

/// Term of the class of all others: a and b are its log-probabilities.
template <class A>
TENON_BOTH inline A divergence_rest(A a, A b) {
  return divergence_term(std::exp(a), a, b);
}

/// Factor of q in the gradient of a logit among all others. Where q vanishes in rounding, the bound keeps
/// their product finite.
template <class A>
TENON_BOTH inline A divergence_rest_slope(A rest) {
  const A most = std::numeric_limits<A>::digits > 24 ? A{700} : A{80};
  return 1 - std::exp(rest < most ? rest : most);
}

/// Sums over the columns of a pair of rows, in double.
struct DistanceSums {
  double squares = 0;  ///< of the difference
  double student = 0, teacher = 0, product = 0;

  TENON_BOTH DistanceSums operator+(const DistanceSums& other) const {
    return {squares + other.squares, student + other.student, teacher + other.teacher,
            product + other.product};
  }
  TENON_BOTH void see(double y, double t) {
    squares += (y - t) * (y - t);
    student += y * y, teacher += t * t, product += y * t;
  }
};

enum class Distance : std::uint8_t { kMse = 0, kNormalisedMse = 1, kCosine = 2 };

/// The gradient of an element is of_difference (y - t) + of_teacher t.
struct DistanceRow {
  double loss = 0, of_difference = 0, of_teacher = 0;
};

TENON_BOTH inline DistanceRow distance_row(Distance form, const DistanceSums& sums, std::int64_t columns) {
  if (form == Distance::kCosine) {
    // Of equal rows this root is the square itself, to the bit.
    const double sizes = std::sqrt(sums.student * sums.teacher);
    if (sizes == 0) return {1, 0, 0};
    const double cosine = sums.product / sizes, of_student = cosine / sums.student;
    return {1 - cosine, of_student, of_student - 1 / sizes};
  }
  const double size = form == Distance::kMse ? static_cast<double>(columns) : sums.teacher;
  if (size == 0) return {};
  return {sums.squares / size, 2 / size, 0};
}

/// A key whose order is that of numbers, the zeros being equal, and the inverse.
TENON_BOTH inline std::uint32_t order_key(float x) {
  std::uint32_t bits = 0;
  const float plus = x + 0.0f;
  std::memcpy(&bits, &plus, sizeof(bits));
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
TENON_BOTH inline std::uint64_t order_key(double x) {
  std::uint64_t bits = 0;
  const double plus = x + 0.0;
  std::memcpy(&bits, &plus, sizeof(bits));
  return (bits >> 63) != 0 ? ~bits : bits | 0x8000000000000000u;
}
TENON_BOTH inline float of_order_key(std::uint32_t key) {
  const std::uint32_t bits = (key >> 31) != 0 ? key & 0x7fffffffu : ~key;
  float x = 0;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
TENON_BOTH inline double of_order_key(std::uint64_t key) {
  const std::uint64_t bits = (key >> 63) != 0 ? key & 0x7fffffffffffffffu : ~key;
  double x = 0;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

template <class A>
using OrderKey = decltype(order_key(A{}));

/// The largest key that at least `wanted` of them reach. count(key) returns how many do. One bit at a time:
/// no memory, and the same answer however the counting is shared.
template <class Key, class Count>
TENON_BOTH Key kth_largest(std::int64_t wanted, Count count) {
  Key found = 0;
  for (Key bit = Key{1} << (sizeof(Key) * 8 - 1); bit != 0; bit >>= 1) {
    if (count(static_cast<Key>(found | bit)) >= wanted) found |= bit;
  }
  return found;
}

}  // namespace tenon::kernels
