// Kernel bodies of maps over flat tensors. Every element depends on its own inputs alone.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/half.hpp>
#include <type_traits>

namespace tenon::kernels::cuda {

/// y[i] = map(i), rounded to S; `map` returns the arithmetic type.
template <class S, class Map>
struct MapElements {
  S* y;
  std::int64_t n;
  Map map;

  TENON_BOTH void operator()(const Block& block) const {
    const MapElements& a = *this;
    for_each_element(block, n, [&](std::int64_t i) { a.y[i] = put<S>(a.map(i)); });
  }
};

template <class S>
struct Constant {
  Arith<S> value;
  TENON_BOTH Arith<S> operator()(std::int64_t) const { return value; }
};
template <class S>
struct Scaled {
  const S* x;
  Arith<S> factor;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const { return get(x[i]) * factor; }
};
/// y + a * x
template <class S>
struct AddScaled {
  const S *x, *y;
  Arith<S> a;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const { return get(y[i]) + a * get(x[i]); }
};
/// y + weight * (x - y)
template <class S>
struct Between {
  const S *x, *y;
  Arith<S> weight;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const {
    return get(y[i]) + weight * (get(x[i]) - get(y[i]));
  }
};
template <class S>
struct Difference {
  const S *a, *b;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const { return get(a[i]) - get(b[i]); }
};
/// a - b, but 0 where b is not a number.
template <class S>
struct TargetDifference {
  const S *a, *b;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const {
    const Arith<S> target = get(b[i]);
    return target == target ? get(a[i]) - target : Arith<S>{0};
  }
};
template <class S>
struct Sum {
  const S *a, *b;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const { return get(a[i]) + get(b[i]); }
};
/// x[r, :] + bias[:]
template <class S>
struct WithBias {
  const S* x;
  const Arith<S>* bias;
  std::int64_t columns;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const {
    return get(x[i]) + bias[divided(i, columns).remainder];
  }
};
/// y[i] = x[i] in another storage type, rounded once.
template <class From, class To>
struct ConvertElements {
  const From* x;
  To* y;
  std::int64_t n;

  TENON_BOTH static To converted(From value) {
    if constexpr (std::is_same_v<To, Bf16> || std::is_same_v<To, Half>) {
      float single = 0;
      if constexpr (std::is_same_v<From, double>) {
        single = to_odd(value);
      } else if constexpr (std::is_same_v<From, float>) {
        single = value;
      } else {
        single = to_float(value);
      }
      if constexpr (std::is_same_v<To, Bf16>) {
        return to_bf16(single);
      } else {
        return to_half(single);
      }
    } else if constexpr (std::is_same_v<From, Bf16> || std::is_same_v<From, Half>) {
      return static_cast<To>(to_float(value));
    } else {
      return static_cast<To>(value);
    }
  }

  TENON_BOTH void operator()(const Block& block) const {
    const ConvertElements& a = *this;
    for_each_element(block, n, [&](std::int64_t i) { a.y[i] = converted(a.x[i]); });
  }
};

/// partial[block] = number of elements of this block's share that are not NaN. One per block, to be added in
/// their order.
template <class S>
struct CountNumbers {
  const S* x;
  std::int64_t n;
  std::int64_t* partial;

  TENON_BOTH void operator()(const Block& block) const {
    std::int64_t* const counts = block.shared<std::int64_t>();
    const CountNumbers& a = *this;
    block.each([&](int thread) {
      std::int64_t own = 0;
      const std::int64_t stride = block.blocks() * block.threads();
      for (std::int64_t i = block.index() * block.threads() + thread; i < a.n; i += stride)
        own += get(a.x[i]) == get(a.x[i]);
      counts[thread] = own;
    });
    reduce_block(block, counts, Add{});
    block.each([&](int thread) {
      if (thread == 0) a.partial[block.index()] = counts[0];
    });
  }
};

}  // namespace tenon::kernels::cuda
