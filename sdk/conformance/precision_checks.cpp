// Checks of precision policies: products near the exact ones, within the requested memory; non-finite numbers
// are detected; the loss scale stays usable.
#include "memory_state.hpp"
#include "site_rig.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

namespace tenon::conformance {
namespace {

/// Bound on the error of a product, relative to its norm. Formats of two bits stay below it; a wrong sign,
/// factor or transposition does not.
constexpr double kNear = 0.7;

/// Calls `look(rig, shape)` for each usual site that the policy accepted.
template <typename Look>
void each_site(Subject& subject, Look&& look) {
  const testing::Made<Precision> precision = subject.make<Precision>();
  int taken = 0;
  for (const SiteShape& shape : kSiteShapes) {
    SiteRig rig(subject, *precision, shape);
    if (rig.site() == nullptr) continue;
    ++taken;
    look(rig, shape);
  }
  if (taken == 0) not_applicable("it leaves all usual sites to the core (bind returns null)");
}

void expect_near(const char* product, const SiteShape& shape, const std::vector<double>& found,
                 const std::vector<double>& expected, const char* how) {
  const double error = frobenius_error(found, expected);
  if (error < kNear) return;
  fail(fmt::format(
      "{} of {}{} is {:.3g} away from the exact product, relative to its norm; expected below {}. "
      "First elements: {:.4g}, {:.4g}; exactly {:.4g}, {:.4g}",
      product, text_of(shape), how, error, kNear, found[0], found[1], expected[0], expected[1]));
}

void is_near_the_product(Subject& subject) {
  each_site(subject, [](SiteRig& rig, const SiteShape& shape) {
    expect_near("fprop", shape, rig.fprop(), rig.exact_fprop(), "");
    expect_near("dgrad", shape, rig.dgrad(), rig.exact_dgrad(), "");
    expect_near("wgrad", shape, rig.wgrad(), rig.exact_wgrad(), "");
  });
}

void adds_where_told(Subject& subject) {
  each_site(subject, [](SiteRig& rig, const SiteShape& shape) {
    rig.fprop();
    const auto shifted = [](std::vector<double> exact, const std::vector<double>& base) {
      for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += base[i];
      return exact;
    };
    // The base is twice as large as the product, so a result without the sum is far off.
    std::vector<double> base = rig.exact_dgrad();
    for (double& value : base) value *= -2;
    rig.set(rig.dx, base);
    base = rig.get(rig.dx);
    expect_near("dgrad", shape, rig.dgrad(&base), shifted(rig.exact_dgrad(), base), ", added to dx,");
    base = rig.exact_wgrad();
    for (double& value : base) value *= -2;
    rig.set(rig.dw, base);
    base = rig.get(rig.dw);
    expect_near("wgrad", shape, rig.wgrad(&base), shifted(rig.exact_wgrad(), base), ", added to dw,");
  });
}

void follows_the_weights(Subject& subject) {
  each_site(subject, [](SiteRig& rig, const SiteShape& shape) {
    rig.fprop();
    rig.dgrad();
    std::vector<double> other = rig.get(rig.w);
    for (double& value : other) value *= -1.5;
    rig.set_weight(other);
    expect_near("fprop", shape, rig.fprop(), rig.exact_fprop(),
                ", after the weight changed and SiteCall::weight_version rose,");
    expect_near("dgrad", shape, rig.dgrad(), rig.exact_dgrad(),
                ", after the weight changed and SiteCall::weight_version rose,");
  });
}

void stays_inside(Subject& subject) {
  each_site(subject, [](SiteRig& rig, const SiteShape& shape) {
    const std::vector<std::pair<const char*, TensorView>> given = {
        {"x", rig.x}, {"w", rig.w}, {"bias", rig.bias}, {"dy", rig.dy}};
    std::vector<std::vector<double>> before;
    for (const auto& [name, view] : given) before.push_back(rig.get(view));
    rig.fprop();
    rig.dgrad();
    rig.wgrad();
    const std::string spilled = rig.spilled();
    if (!spilled.empty()) {
      fail(fmt::format(
          "{}: it wrote outside of {}; memory() says how many bytes kept, persistent and scratch have",
          text_of(shape), spilled));
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (rig.get(given[i].second) != before[i])
        fail(fmt::format("{}: it wrote to its operand {}", text_of(shape), given[i].first));
    }
  });
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

void passes_non_finite_on(Subject& subject) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    each_site(subject, [&](SiteRig& rig, const SiteShape& shape) {
      const auto spoil = [&](TensorView view) {
        std::vector<double> values = rig.get(view);
        const std::vector<double> good = values;
        values[values.size() / 2] = bad;
        rig.set(view, values);
        return good;
      };
      const auto expect = [&](const char* product, const char* operand, const std::vector<double>& result) {
        if (!all_finite(result)) return;
        fail(
            fmt::format("{}: with {} in {}, {} is finite everywhere: what overflowed would be applied as an "
                        "update, and a "
                        "loss scale would never learn of it",
                        text_of(shape), bad, operand, product));
      };
      std::vector<double> good = spoil(rig.x);
      expect("fprop", "x", rig.fprop());
      expect("wgrad", "x", rig.wgrad());
      rig.set(rig.x, good);
      rig.fprop();
      good = spoil(rig.dy);
      expect("dgrad", "dy", rig.dgrad());
      expect("wgrad", "dy", rig.wgrad());
      rig.set(rig.dy, good);
      good = spoil(rig.w);
      rig.set_weight(rig.get(rig.w));
      expect("fprop", "w", rig.fprop());
    });
  }
}

void counts_its_operands(Subject& subject) {
  each_site(subject, [](SiteRig& rig, const SiteShape& shape) {
    const double error = std::max({frobenius_error(rig.fprop(), rig.exact_fprop()),
                                   frobenius_error(rig.dgrad(), rig.exact_dgrad()),
                                   frobenius_error(rig.wgrad(), rig.exact_wgrad())});
    const bool wide = rig.x.dtype == DType::kF32 || rig.x.dtype == DType::kF64;
    if (error < (wide ? 1e-5 : 2e-2) || rig.counted() > 0) return;
    fail(fmt::format(
        "{}: its products are {:.2g} away from the exact ones, so operands passed through a narrower "
        "format, but SiteHost::operands() counted none: summary.json would say that nothing was "
        "quantized",
        text_of(shape), error));
  });
}

BackwardStats stats_of(std::int64_t slot, bool overflow) {
  BackwardStats stats;
  stats.slot = slot;
  stats.found_non_finite = overflow;
  stats.loss = overflow ? std::numeric_limits<double>::quiet_NaN() : 1.0;
  stats.gradient_norm = overflow ? std::numeric_limits<double>::infinity() : 0.5;
  return stats;
}

bool step(Precision& precision, std::int64_t slot, bool overflow, const std::string& when) {
  const double scale = precision.loss_scale();
  if (!std::isfinite(scale) || scale < 1e-30 || scale > 1e30) {
    fail(fmt::format("loss_scale() is {} {}; expected a number that a loss in float32 can be multiplied by",
                     scale, when));
  }
  return precision.after_backward(stats_of(slot, overflow));
}

constexpr int kOverflows = 400, kFewOverflows = 8;

/// Returns how many overflows in a row the policy tolerates, at most kOverflows. It may end the run with an
/// error that says why, after more than occur while a scale is being found.
int overflows_borne(Subject& subject) {
  const testing::Made<Precision> precision = subject.make<Precision>();
  for (int i = 0; i < kOverflows; ++i) {
    try {
      if (step(*precision, i, true, fmt::format("during {} overflows in a row", kOverflows)))
        fail("after_backward accepts an update whose gradients are not finite (found_non_finite)");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kRun || std::string_view(error.what()).empty()) {
        fail(fmt::format(
            "after {} overflows in a row it gives up with '{}', which is not an Error(kRun) that says "
            "why and what to change",
            i + 1, error.what()));
      }
      if (i < kFewOverflows) {
        fail(fmt::format(
            "it gives up after {} overflows in a row: {}. Expected it to bear {}, as happen while a "
            "loss scale is being found",
            i + 1, error.what(), kFewOverflows));
      }
      return i;
    }
  }
  return kOverflows;
}

void scales_the_loss_usably(Subject& subject) {
  const int borne = overflows_borne(subject);
  const testing::Made<Precision> precision = subject.make<Precision>();
  const std::string after = fmt::format("after {} overflows in a row", borne);
  std::int64_t slot = 0;
  while (slot < borne) step(*precision, slot++, true, "during " + after.substr(6));
  int applied = 0;
  for (int i = 0; i < 50000; ++i)
    applied += step(*precision, slot++, false, after + ", in 50000 good slots") ? 1 : 0;
  if (applied == 0) fail(after + " it refuses all of 50000 updates with finite gradients");
  BackwardStats uncounted = stats_of(slot++, false);
  uncounted.gradient_norm = std::nan("");
  bool any = false;
  for (int i = 0; i < 100; ++i) any = precision->after_backward(uncounted) || any;
  if (!any) fail("it refuses updates whose norm was not computed (NaN), though nothing non-finite was found");
}

void keeps_its_types(Subject& subject) {
  const testing::Made<Precision> precision = subject.make<Precision>(), other = subject.make<Precision>();
  const DType activations = precision->activations(), parameters = precision->parameters();
  if (activations != DType::kF32 && activations != DType::kF64 && activations != DType::kBF16)
    fail(fmt::format("activations() is {}; this version's layers compute in f32, f64 and bf16",
                     dtype_name(activations)));
  if (parameters != DType::kF32 && parameters != DType::kF64)
    fail(fmt::format("parameters() is {}; master weights are f32 or f64", dtype_name(parameters)));
  for (int i = 0; i < 40; ++i) precision->after_backward(stats_of(i, i % 3 == 0));
  if (precision->activations() != activations || precision->parameters() != parameters ||
      other->activations() != activations || other->parameters() != parameters)
    fail("activations() or parameters() changed during the run, or differ between two objects");
}

void carries_its_state(Subject& subject) {
  for (const int cut : {1, 7, 30}) {
    const testing::Made<Precision> whole = subject.make<Precision>(), later = subject.make<Precision>();
    const auto overflows = [](int slot) { return slot % 5 == 2 || slot % 11 == 3; };
    for (int slot = 0; slot < cut; ++slot) whole->after_backward(stats_of(slot, overflows(slot)));
    MemoryState state(subject.device());
    whole->state(state);
    state.load();
    later->state(state);
    for (int slot = cut; slot < 4000; ++slot) {
      const bool bad = slot < 100 && overflows(slot);
      const bool a = whole->after_backward(stats_of(slot, bad)),
                 b = later->after_backward(stats_of(slot, bad));
      if (a == b && whole->loss_scale() == later->loss_scale()) continue;
      fail(fmt::format(
          "state() was saved after {} slots and given to another object; in slot {} the one that went on "
          "has the loss scale {} and applies = {}, the other {} and {}",
          cut, slot, whole->loss_scale(), a, later->loss_scale(), b));
    }
  }
}

constexpr const char* kPrecisionKind = "precision/1";
constexpr Check kPrecisionChecks[] = {
    {"precision.keeps_its_types", kPrecisionKind, "dtypes that layers know, the same from beginning to end",
     keeps_its_types},
    {"precision.is_near_the_product", kPrecisionKind,
     "fprop, dgrad and wgrad are near the exact products, whole and in chunks", is_near_the_product},
    {"precision.adds_where_told", kPrecisionKind, "with accumulate a product is added to what is there",
     adds_where_told},
    {"precision.follows_the_weights", kPrecisionKind,
     "copies of weights are made anew when the weight's version rises", follows_the_weights},
    {"precision.stays_inside", kPrecisionKind,
     "it writes to its outputs and to the memory that it asked for, nowhere else", stays_inside},
    {"precision.passes_non_finite_on", kPrecisionKind, "NaN and infinity in an operand reach the result",
     passes_non_finite_on},
    {"precision.counts_its_operands", kPrecisionKind, "operands of other formats are counted",
     counts_its_operands},
    {"precision.scales_the_loss_usably", kPrecisionKind,
     "non-finite gradients are refused; the loss scale stays usable, or the run ends with a reason",
     scales_the_loss_usably},
    {"precision.carries_its_state", kPrecisionKind, "state() holds all that the loss scale depends on",
     carries_its_state},
};

}  // namespace

std::span<const Check> precision_checks() {
  return kPrecisionChecks;
}

}  // namespace tenon::conformance
