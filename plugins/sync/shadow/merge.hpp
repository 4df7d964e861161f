// Operations on weights that worker threads train while another thread reads or changes them. Every element
// is loaded and stored atomically (relaxed), so no thread reads a torn value; an update between a load and
// its store is lost, as between Hogwild workers. Flat views of f32 or f64; complex numbers are pairs of
// those.
#pragma once

#include <tenon/parameter.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <vector>

namespace tenon::sync_shadow {

/// Returns the arenas of trained parameters. Throws Error(kConfig) for weights of another dtype or outside
/// host memory.
std::vector<int> trained_arenas(const ParameterSet& live);

/// Return the elements of an arena as reals; a slice of them.
TensorView as_reals(TensorView arena);
TensorView slice(const TensorView& reals, std::int64_t begin, std::int64_t count);

/// to = w, with `to` owned by the caller.
void take(const TensorView& w, const TensorView& to);
/// w -= d
void subtract(const TensorView& d, const TensorView& w);
/// w += u - v
void add_difference(const TensorView& u, const TensorView& v, const TensorView& w);
/// w = (1 - a) w + a u; a = 1 gives the bits of u.
void pull(double a, const TensorView& u, const TensorView& w);

/// On private memory. moved = a (w - c), then c += moved; w and moved may be the same.
void attract(double a, const TensorView& w, const TensorView& c, const TensorView& moved);
/// c = (1 - a) c + a w
void follow(double a, const TensorView& w, const TensorView& c);
/// c += e
void add(const TensorView& e, const TensorView& c);
/// e = a (w - c), stored in place of c
void elastic(double a, const TensorView& w, const TensorView& c);

}  // namespace tenon::sync_shadow
