// Checks of precision policies: products near the exact ones, within the requested memory; non-finite numbers
// are detected; the loss scale stays usable.
#include "base/at.hpp"
#include "memory_state.hpp"
#include "subject.hpp"
#include "thread_rounds.hpp"

#include <tenon/precision.hpp>
#include <tenon/random.hpp>
#include <tenon/testing/tensors.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::conformance {

// One linear site of the precision under test, called as the executor calls it: memory of exactly the size
// that the site asked for, with guard bytes on both sides, and chunks of rows. Exact products to compare
// with.

struct SiteShape {
  std::int64_t m = 0, n = 0, k = 0, chunk = 0;
  int layer_index = 0, layer_count = 4;
  bool bias = false;
};
std::string text_of(const SiteShape& shape);

/// Rectangles that fit blocks of 16 and of 32, and such that fit nothing; whole and in chunks.
extern const std::vector<SiteShape> kSiteShapes;

class SiteRig final : public SiteHost, public OperandCounter {
 public:
  /// On the subject's device, or on `device`.
  SiteRig(Subject& subject, Precision& precision, const SiteShape& shape, Device* device = nullptr);
  ~SiteRig() override;
  SiteRig(const SiteRig&) = delete;
  SiteRig& operator=(const SiteRig&) = delete;

  /// Null if the policy left the product to the core.
  LinearSite* site() const { return site_.get(); }
  Device& device() override { return device_; }
  OperandCounter& operands() override { return *this; }
  RandomKey rounding_key() override { return random_key(1, "rounding"); }
  TensorView state(std::string_view name, DType dtype, const Shape& shape) override;
  void count(std::string_view, std::int64_t operands) override { counted_ += operands; }
  std::int64_t counted() const { return counted_; }

  void set_weight(const std::vector<double>& values);  ///< raises its version
  void set(TensorView view, const std::vector<double>& values);
  std::vector<double> get(TensorView view) const;

  /// Runs all rows, chunk by chunk. Outputs start as NaN, or as `base` if the product is added to them.
  std::vector<double> fprop();
  std::vector<double> dgrad(const std::vector<double>* base = nullptr);
  std::vector<double> wgrad(const std::vector<double>* base = nullptr);
  std::vector<double> exact_fprop() const;
  std::vector<double> exact_dgrad() const;
  std::vector<double> exact_wgrad() const;

  /// Returns the name of memory whose guard bytes have changed; "" = none.
  std::string spilled() const;

  TensorView x, w, bias, y, dy, dx, dw;

 private:
  struct Guarded {
    std::string name;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  TensorView guard(std::byte* memory) const;
  TensorView allocate(const std::string& name, DType dtype, const Shape& shape);
  template <typename Call>
  void in_chunks(Call&& call);

  Device& device_;
  SiteShape shape_;
  std::vector<Guarded> memory_;
  std::deque<std::string> state_names_;
  std::map<std::string, TensorView> states_;
  std::unique_ptr<LinearSite> site_;
  SiteCall call_;
  std::int64_t counted_ = 0;
};

/// |found - expected| / |expected| in the Frobenius norm; infinite if anything is not finite.
double frobenius_error(const std::vector<double>& found, const std::vector<double>& expected);

namespace {

constexpr std::size_t kGuard = 64;
constexpr double kMark = 0xA5;

}  // namespace

const std::vector<SiteShape> kSiteShapes = {
    {.m = 32, .n = 48, .k = 64, .chunk = 32, .layer_index = 0, .bias = true},
    {.m = 96, .n = 32, .k = 32, .chunk = 32, .layer_index = 1},
    {.m = 40, .n = 24, .k = 50, .chunk = 16, .layer_index = 1, .bias = true},
    {.m = 7, .n = 5, .k = 9, .chunk = 7, .layer_index = 2},
    {.m = 128, .n = 128, .k = 128, .chunk = 128, .layer_index = 3, .bias = true},
};

std::string text_of(const SiteShape& shape) {
  return fmt::format("a site with m = {}, n = {}, k = {}, chunk = {} in layer {} of {}", shape.m, shape.n,
                     shape.k, shape.chunk, shape.layer_index, shape.layer_count);
}

double frobenius_error(const std::vector<double>& found, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  const double result = std::sqrt(error / size);
  return std::isfinite(result) ? result : std::numeric_limits<double>::infinity();
}

SiteRig::SiteRig(Subject& subject, Precision& precision, const SiteShape& shape, Device* device)
    : device_(device == nullptr ? subject.device() : *device), shape_(shape) {
  const DType activation = precision.activations(), parameter = precision.parameters();
  x = allocate("x", activation, {shape.m, shape.k});
  w = allocate("w", parameter, {shape.n, shape.k});
  if (shape.bias) bias = allocate("bias", parameter, {shape.n});
  y = allocate("y", activation, {shape.m, shape.n});
  dy = allocate("dy", activation, {shape.m, shape.n});
  dx = allocate("dx", activation, {shape.m, shape.k});
  dw = allocate("dw", parameter, {shape.n, shape.k});
  SiteInfo info;
  info.layer = "conformance.fc";
  info.module = "linear";
  info.weight = "conformance.fc.weight";
  info.layer_index = shape.layer_index;
  info.layer_count = shape.layer_count;
  info.block_index = shape.layer_index;
  info.block_count = shape.layer_count;
  info.m = shape.m, info.n = shape.n, info.k = shape.k, info.chunk = shape.chunk;
  info.bias = shape.bias;
  info.activation = activation;
  info.parameter = parameter;
  site_ = precision.bind(info, *this);
  if (site_ == nullptr) return;
  const SiteMemory need = site_->memory();
  const auto bytes = [&](const char* name, std::size_t count) {
    return allocate(name, DType::kU8, {static_cast<std::int64_t>(count)});
  };
  call_.kept = bytes("kept", need.kept);
  call_.persistent = bytes("persistent", need.persistent);
  call_.scratch = bytes("scratch", need.scratch);
  set(x, testing::normals(x.elements(), "x"));
  set(dy, testing::normals(dy.elements(), "dy"));
  if (shape.bias) set(bias, testing::normals(bias.elements(), "bias"));
  set_weight(testing::normals(w.elements(), "w"));
}

SiteRig::~SiteRig() {
  site_.reset();
  for (const Guarded& entry : memory_) device_.release(entry.memory, entry.bytes + 2 * kGuard);
}

TensorView SiteRig::guard(std::byte* memory) const {
  return {memory, {static_cast<std::int64_t>(kGuard)}, DType::kU8, device_.space()};
}

TensorView SiteRig::allocate(const std::string& name, DType dtype, const Shape& shape) {
  TensorView view{nullptr, shape, dtype, device_.space()};
  const std::size_t bytes = view.bytes();
  auto* const memory = static_cast<std::byte*>(device_.allocate(bytes + 2 * kGuard));
  const std::vector<double> mark(kGuard, kMark);
  testing::write(device_, guard(memory), mark);
  testing::write(device_, guard(memory + kGuard + bytes), mark);
  memory_.push_back({name, memory, bytes});
  view.data = memory + kGuard;
  return view;
}

TensorView SiteRig::state(std::string_view name, DType dtype, const Shape& shape) {
  const auto [entry, fresh] = states_.try_emplace(std::string(name));
  if (!fresh) fail(fmt::format("it asks for the state '{}' twice: names are unique within a site", name));
  entry->second = allocate(fmt::format("state '{}'", name), dtype, shape);
  return entry->second;
}

void SiteRig::set(TensorView view, const std::vector<double>& values) {
  testing::write(device_, view, values);
}

std::vector<double> SiteRig::get(TensorView view) const {
  return testing::read(device_, view);
}

void SiteRig::set_weight(const std::vector<double>& values) {
  set(w, values);
  ++call_.weight_version;
}

template <typename Call>
void SiteRig::in_chunks(Call&& call) {
  for (std::int64_t first = 0; first < shape_.m; first += shape_.chunk) {
    call_.first_row = first;
    call(first, std::min(first + shape_.chunk, shape_.m));
  }
}

std::vector<double> SiteRig::fprop() {
  set(y, std::vector<double>(y.elements(), std::nan("")));
  in_chunks([&](std::int64_t begin, std::int64_t end) {
    site_->fprop(call_, x.rows(begin, end), w, bias, y.rows(begin, end));
  });
  return get(y);
}

std::vector<double> SiteRig::dgrad(const std::vector<double>* base) {
  set(dx, base != nullptr ? *base : std::vector<double>(dx.elements(), std::nan("")));
  in_chunks([&](std::int64_t begin, std::int64_t end) {
    site_->dgrad(call_, dy.rows(begin, end), w, dx.rows(begin, end), base != nullptr);
  });
  return get(dx);
}

std::vector<double> SiteRig::wgrad(const std::vector<double>* base) {
  set(dw, base != nullptr ? *base : std::vector<double>(dw.elements(), std::nan("")));
  bool first = base == nullptr;
  in_chunks([&](std::int64_t begin, std::int64_t end) {
    TensorView rows = x.rows(begin, end);
    if (!site_->reads_input()) rows.data = nullptr;
    site_->wgrad(call_, rows, dy.rows(begin, end), dw, !first);
    first = false;
  });
  return get(dw);
}

std::vector<double> SiteRig::exact_fprop() const {
  const std::vector<double> a = get(x), b = get(w), c = get(bias);
  std::vector<double> result;
  for (std::int64_t i = 0; i < shape_.m; ++i) {
    for (std::int64_t j = 0; j < shape_.n; ++j) {
      double sum = c.empty() ? 0 : base::at(c, j);
      for (std::int64_t l = 0; l < shape_.k; ++l)
        sum += base::at(a, i * shape_.k + l) * base::at(b, j * shape_.k + l);
      result.push_back(sum);
    }
  }
  return result;
}

std::vector<double> SiteRig::exact_dgrad() const {
  const std::vector<double> a = get(dy), b = get(w);
  std::vector<double> result(shape_.m * shape_.k, 0.0);
  for (std::int64_t i = 0; i < shape_.m; ++i) {
    for (std::int64_t j = 0; j < shape_.n; ++j) {
      for (std::int64_t l = 0; l < shape_.k; ++l)
        base::at(result, i * shape_.k + l) += base::at(a, i * shape_.n + j) * base::at(b, j * shape_.k + l);
    }
  }
  return result;
}

std::vector<double> SiteRig::exact_wgrad() const {
  const std::vector<double> a = get(dy), b = get(x);
  std::vector<double> result(shape_.n * shape_.k, 0.0);
  for (std::int64_t i = 0; i < shape_.m; ++i) {
    for (std::int64_t j = 0; j < shape_.n; ++j) {
      for (std::int64_t l = 0; l < shape_.k; ++l)
        base::at(result, j * shape_.k + l) += base::at(a, i * shape_.n + j) * base::at(b, i * shape_.k + l);
    }
  }
  return result;
}

std::string SiteRig::spilled() const {
  const auto marked = [&](std::byte* memory) {
    const std::vector<double> found = get(guard(memory));
    return std::all_of(found.begin(), found.end(), [](double value) { return value == kMark; });
  };
  for (const Guarded& entry : memory_) {
    if (!marked(entry.memory)) return entry.name + " (in front of it)";
    if (!marked(entry.memory + kGuard + entry.bytes)) return entry.name + " (after it)";
  }
  return "";
}

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

void products_have_the_same_bits(Subject& subject) {
  // Each operand has more than four blocks of elements.
  constexpr SiteShape kLarge{.m = 320, .n = 288, .k = 352, .chunk = 320, .layer_index = 1, .bias = true};
  require_same_bits(subject, "fprop, dgrad and wgrad of " + text_of(kLarge), [&](Device& device) {
    const testing::Made<Precision> precision = subject.make<Precision>();
    SiteRig rig(subject, *precision, kLarge, &device);
    if (rig.site() == nullptr) not_applicable("it leaves usual sites to the core (bind returns null)");
    std::vector<double> all = rig.fprop();
    for (const std::vector<double>& more : {rig.dgrad(), rig.wgrad()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  });
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
    {"precision.same_bits_on_any_threads", kPrecisionKind,
     "1, 2 and 4 threads give the same bits, in every round", products_have_the_same_bits, 60},
};

}  // namespace

std::span<const Check> precision_checks() {
  return kPrecisionChecks;
}

}  // namespace tenon::conformance
