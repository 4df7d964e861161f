// The loops of merge.hpp.
#include "merge.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <atomic>
#include <string>

namespace tenon::sync_shadow {
namespace {

template <typename Real>
Real load(Real& element) {
  return std::atomic_ref<Real>(element).load(std::memory_order_relaxed);
}
template <typename Real>
void store(Real& element, Real value) {
  std::atomic_ref<Real>(element).store(value, std::memory_order_relaxed);
}

/// body(Real{}, number of elements) with the type of `view`.
template <typename Body>
void with_type(const TensorView& view, Body&& body) {
  const std::int64_t n = view.elements();
  if (view.dtype == DType::kF64) {
    body(double{}, n);
  } else {
    body(float{}, n);
  }
}

}  // namespace

std::vector<int> trained_arenas(const ParameterSet& live) {
  std::vector<int> arenas;
  for (const ParameterInfo& info : live.parameters()) {
    if (info.arena < 0 || info.spec.role != Role::kParameter || !info.spec.trainable) continue;
    const DType dtype = as_reals(live.arena(info.arena)).dtype;
    if (dtype != DType::kF32 && dtype != DType::kF64) {
      fail_config("shadow strategies merge weights of f32 and f64, and '" + info.spec.name + "' is " +
                  std::string(dtype_name(info.spec.dtype)) +
                  "; take a [precision] whose master weights are f32, or sync \"ddp\"");
    }
    if (std::find(arenas.begin(), arenas.end(), info.arena) == arenas.end()) arenas.push_back(info.arena);
  }
  std::sort(arenas.begin(), arenas.end());
  return arenas;
}

TensorView as_reals(TensorView arena) {
  if (!dtype_is_complex(arena.dtype)) return arena;
  arena.shape = Shape{2 * arena.elements()};
  arena.dtype = arena.dtype == DType::kC128 ? DType::kF64 : DType::kF32;
  return arena;
}

TensorView slice(const TensorView& reals, std::int64_t begin, std::int64_t count) {
  TensorView part = reals;
  part.data = static_cast<std::byte*>(reals.data) + dtype_bytes(reals.dtype, begin);
  part.shape = Shape{count};
  return part;
}

void take(const TensorView& w, const TensorView& to) {
  with_type(w, [&](auto type, std::int64_t n) {
    using Real = decltype(type);
    for (std::int64_t i = 0; i < n; ++i) to.as<Real>()[i] = load(w.as<Real>()[i]);
  });
}

void subtract(const TensorView& d, const TensorView& w) {
  with_type(w, [&](auto type, std::int64_t n) {
    using Real = decltype(type);
    for (std::int64_t i = 0; i < n; ++i) store(w.as<Real>()[i], load(w.as<Real>()[i]) - d.as<Real>()[i]);
  });
}

void add_difference(const TensorView& u, const TensorView& v, const TensorView& w) {
  with_type(w, [&](auto type, std::int64_t n) {
    using Real = decltype(type);
    for (std::int64_t i = 0; i < n; ++i)
      store(w.as<Real>()[i], load(w.as<Real>()[i]) + (u.as<Real>()[i] - v.as<Real>()[i]));
  });
}

void pull(double a, const TensorView& u, const TensorView& w) {
  with_type(w, [&](auto type, std::int64_t n) {
    using Real = decltype(type);
    const auto share = static_cast<Real>(a), rest = static_cast<Real>(1 - a);
    for (std::int64_t i = 0; i < n; ++i)
      store(w.as<Real>()[i], rest * load(w.as<Real>()[i]) + share * u.as<Real>()[i]);
  });
}

void attract(double a, const TensorView& w, const TensorView& c, const TensorView& moved) {
  with_type(w, [&](auto type, std::int64_t n) {
    using Real = decltype(type);
    const auto share = static_cast<Real>(a);
    for (std::int64_t i = 0; i < n; ++i) {
      const Real d = share * (w.as<Real>()[i] - c.as<Real>()[i]);
      c.as<Real>()[i] += d;
      moved.as<Real>()[i] = d;
    }
  });
}

void follow(double a, const TensorView& w, const TensorView& c) {
  with_type(w, [&](auto type, std::int64_t n) {
    using Real = decltype(type);
    const auto share = static_cast<Real>(a), rest = static_cast<Real>(1 - a);
    for (std::int64_t i = 0; i < n; ++i) c.as<Real>()[i] = rest * c.as<Real>()[i] + share * w.as<Real>()[i];
  });
}

void add(const TensorView& e, const TensorView& c) {
  with_type(c, [&](auto type, std::int64_t n) {
    using Real = decltype(type);
    for (std::int64_t i = 0; i < n; ++i) c.as<Real>()[i] += e.as<Real>()[i];
  });
}

void elastic(double a, const TensorView& w, const TensorView& c) {
  with_type(w, [&](auto type, std::int64_t n) {
    using Real = decltype(type);
    const auto share = static_cast<Real>(a);
    for (std::int64_t i = 0; i < n; ++i) c.as<Real>()[i] = share * (load(w.as<Real>()[i]) - c.as<Real>()[i]);
  });
}

}  // namespace tenon::sync_shadow
