// Replacement for cuFFT where there is no device: sums over whole lines, as plain as can be.
#include "fft.hpp"

#include <vector>

namespace tenon::cuda {
namespace {

/// One thread per element of the result.
template <class T>
struct PlainLines {
  const double* waves;
  const T* from;
  T* to;
  LinePlanSpec spec;

  std::int64_t modes() const { return spec.real ? spec.length / 2 + 1 : spec.length; }
  std::int64_t items() const { return spec.count * (spec.to_modes ? modes() : spec.length); }

  void operator()(const kernels::cuda::Block& block) const {
    kernels::cuda::for_each_element(block, items(), [&](std::int64_t item) {
      const std::int64_t results = spec.to_modes ? modes() : spec.length, line = item / results,
                         result = item % results;
      double re = 0, im = 0;
      for (std::int64_t i = 0; i < spec.length; ++i) {
        double x[2];
        load(line, i, x);
        const double* const wave = waves + 2 * (i * result % spec.length);
        const double sine = spec.to_modes ? -wave[1] : wave[1];
        re += x[0] * wave[0] - x[1] * sine;
        im += x[0] * sine + x[1] * wave[0];
      }
      if (spec.real && !spec.to_modes) {
        to[item] = static_cast<T>(re);
      } else {
        to[2 * item] = static_cast<T>(re);
        to[2 * item + 1] = static_cast<T>(im);
      }
    });
  }

 private:
  /// Point i of a line, or mode i of its whole spectrum.
  void load(std::int64_t line, std::int64_t i, double* x) const {
    if (spec.to_modes && spec.real) {
      x[0] = from[line * spec.length + i];
      x[1] = 0;
      return;
    }
    const bool conjugate = i >= modes();
    const std::int64_t at = line * modes() + (conjugate ? spec.length - i : i);
    x[0] = from[2 * at];
    x[1] = conjugate ? -from[2 * at + 1] : from[2 * at + 1];
  }
};

class PlainLinePlan final : public LinePlan {
 public:
  PlainLinePlan(Queue& queue, const LinePlanSpec& spec)
      : queue_(queue), spec_(spec), waves_(fft_waves(spec.length)) {}

  void run(void* from, void* to) override {
    spec_.doubles ? start<double>(from, to) : start<float>(from, to);
  }

 private:
  template <class T>
  void start(void* from, void* to) {
    const PlainLines<T> body{waves_.data(), static_cast<const T*>(from), static_cast<T*>(to), spec_};
    queue_.launch("fft", grid_for(body.items()), body);
  }

  Queue& queue_;
  LinePlanSpec spec_;
  std::vector<double> waves_;
};

}  // namespace

std::unique_ptr<LinePlan> make_line_plan(Queue& queue, const LinePlanSpec& spec, std::string& reason) {
  reason.clear();
  return std::make_unique<PlainLinePlan>(queue, spec);
}

}  // namespace tenon::cuda
