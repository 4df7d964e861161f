// All 2^32 float bit patterns through E2M1, E2M3, E3M2, E4M3, E5M2 (to nearest and toward zero) and E8M0 (up
// and toward zero), against an oracle that shares no code with formats.hpp: a table of values by formula in
// double, and a search for the neighbours of |x|. Usage: exhaustive_elements [EVERY [THREADS]]; EVERY = 1
// (all; minutes) by default, N = every N-th pattern. Prints one line per format and fails on the first
// difference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tenon/kernels/formats.hpp>
#include <thread>
#include <vector>

namespace {

using tenon::kernels::Element;
using tenon::kernels::PowerRounding;
using tenon::kernels::Rounding;

/// A format as defined by its standard.
struct Standard {
  const char* name;
  Element element;
  int exponent_bits, mantissa_bits, bias;
  unsigned largest, nan;  ///< codes; nan: of a positive NaN
  bool nan_keeps_sign;
};

constexpr Standard kStandards[] = {
    {"E2M1", Element::kE2M1, 2, 1, 1, 0x07, 0x07, false},
    {"E2M3", Element::kE2M3, 2, 3, 1, 0x1f, 0x1f, false},
    {"E3M2", Element::kE3M2, 3, 2, 3, 0x1f, 0x1f, false},
    {"E4M3", Element::kE4M3, 4, 3, 7, 0x7e, 0x7f, true},
    {"E5M2", Element::kE5M2, 5, 2, 15, 0x7b, 0x7e, true},
};

std::vector<double> values_of(const Standard& s) {
  std::vector<double> values;
  for (unsigned code = 0; code <= s.largest; ++code) {
    const unsigned steps = 1u << s.mantissa_bits, field = code / steps;
    const double fraction = static_cast<double>(code % steps) / steps;
    values.push_back(field == 0 ? std::ldexp(fraction, 1 - s.bias)
                                : std::ldexp(1 + fraction, static_cast<int>(field) - s.bias));
  }
  return values;
}

struct Expected {
  unsigned nearest, toward_zero;
};

/// Saturating, without sign; `hint` is the code below the last magnitude, where the search begins.
Expected expect(double magnitude, const std::vector<double>& values, std::size_t& hint) {
  while (hint > 0 && values[hint] > magnitude) --hint;
  while (hint + 1 < values.size() && values[hint + 1] <= magnitude) ++hint;
  const auto below = static_cast<unsigned>(hint);
  if (hint + 1 == values.size()) return {below, below};
  const double middle = (values[hint] + values[hint + 1]) / 2;
  const bool up = magnitude > middle || (magnitude == middle && below % 2 == 1);
  return {below + (up ? 1 : 0), below};
}

struct Result {
  std::uint64_t tried = 0, different = 0;
  std::uint32_t first = 0;
};

/// One format over the patterns first, first + every, ... below end. 64 bits, because 2^32 is an end.
Result run_elements(const Standard& s, std::uint64_t first, std::uint64_t end, std::uint64_t every) {
  const std::vector<double> values = values_of(s);
  const unsigned sign_bit = 1u << (s.exponent_bits + s.mantissa_bits);
  std::size_t hint = 0;
  Result result;
  for (std::uint64_t pattern = first; pattern < end; pattern += every) {
    float x;
    const auto bits = static_cast<std::uint32_t>(pattern);
    std::memcpy(&x, &bits, sizeof x);
    const unsigned sign = std::signbit(x) ? sign_bit : 0;
    Expected e;
    if (std::isnan(x)) {
      e.nearest = e.toward_zero = s.nan_keeps_sign ? s.nan | sign : s.nan;
    } else {
      e = expect(std::abs(static_cast<double>(x)), values, hint);
      e.nearest |= sign;
      e.toward_zero |= sign;
    }
    ++result.tried;
    if (tenon::kernels::encode(x, s.element) != e.nearest ||
        tenon::kernels::encode(x, s.element, Rounding::kTowardZero) != e.toward_zero) {
      if (result.different++ == 0) result.first = bits;
    }
  }
  return result;
}

/// E8M0: frexp gives the power of two below |x|; saturating.
Result run_powers(const Standard&, std::uint64_t first, std::uint64_t end, std::uint64_t every) {
  Result result;
  for (std::uint64_t pattern = first; pattern < end; pattern += every) {
    float x;
    const auto bits = static_cast<std::uint32_t>(pattern);
    std::memcpy(&x, &bits, sizeof x);
    int down = 255, up = 255;
    if (std::isinf(x)) {
      down = up = 254;
    } else if (!std::isnan(x)) {
      int exponent = 0;
      const double fraction = std::frexp(std::abs(static_cast<double>(x)), &exponent);  // in [1/2, 1), or 0
      down = x == 0 ? 0 : std::clamp(exponent - 1 + 127, 0, 254);
      up = x == 0 ? 0 : std::clamp(exponent - (fraction == 0.5 ? 1 : 0) + 127, 0, 254);
    }
    ++result.tried;
    if (tenon::kernels::encode_e8m0(x, PowerRounding::kUp) != up ||
        tenon::kernels::encode_e8m0(x, PowerRounding::kTowardZero) != down) {
      if (result.different++ == 0) result.first = bits;
    }
  }
  return result;
}

/// Distributes the patterns among threads in equal ranges.
template <class Run>
bool report(const char* name, const Standard& s, Run run, std::uint64_t every, unsigned threads) {
  std::vector<Result> results(threads);
  std::vector<std::thread> workers;
  const std::uint64_t all = std::uint64_t{1} << 32, count = (all + every - 1) / every;
  for (unsigned t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      results[t] =
          run(s, count * t / threads * every, std::min(all, count * (t + 1) / threads * every), every);
    });
  for (std::thread& worker : workers) worker.join();
  Result total;
  for (const Result& r : results) {
    if (total.different == 0 && r.different > 0) total.first = r.first;
    total.tried += r.tried;
    total.different += r.different;
  }
  std::printf("%s: %llu patterns, %llu different", name, static_cast<unsigned long long>(total.tried),
              static_cast<unsigned long long>(total.different));
  if (total.different > 0) std::printf(", the first 0x%08x", total.first);
  std::printf("\n");
  std::fflush(stdout);
  return total.different == 0 && total.tried == count;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t every = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const unsigned long threads =
      argc > 2 ? std::strtoul(argv[2], nullptr, 10) : std::thread::hardware_concurrency();
  if (every == 0 || threads == 0 || threads > 1024) {
    std::fprintf(stderr, "usage: exhaustive_elements [EVERY [THREADS]], both at least 1\n");
    return 2;
  }
  bool equal = true;
  for (const Standard& s : kStandards)
    equal = report(s.name, s, run_elements, every, static_cast<unsigned>(threads)) && equal;
  equal = report("E8M0", kStandards[0], run_powers, every, static_cast<unsigned>(threads)) && equal;
  return equal ? 0 : 1;
}
