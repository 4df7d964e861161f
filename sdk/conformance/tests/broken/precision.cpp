// Precision policies that break one promise each, around products of float32 operands in plain loops.
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/state.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>

namespace {

using namespace tenon;

/// Correct: y = x w^T + bias, dx = dy w, dw = dy^T x.
class Site : public LinearSite {
 public:
  Site(const SiteInfo& info, SiteHost& host) : n_(info.n), k_(info.k), operands_(host.operands()) {}
  SiteMemory memory() const override { return {}; }
  bool reads_input() const override { return true; }
  void fprop(const SiteCall&, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    for (std::int64_t i = 0; i < x.shape[0]; ++i) {
      for (std::int64_t j = 0; j < n_; ++j) {
        float sum = bias.empty() ? 0 : bias.as<float>()[j];
        for (std::int64_t l = 0; l < k_; ++l) sum += x.as<float>()[i * k_ + l] * w.as<float>()[j * k_ + l];
        y.as<float>()[i * n_ + j] = sum;
      }
    }
  }
  void dgrad(const SiteCall&, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    for (std::int64_t i = 0; i < dy.shape[0]; ++i) {
      for (std::int64_t l = 0; l < k_; ++l) {
        float sum = accumulate ? dx.as<float>()[i * k_ + l] : 0;
        for (std::int64_t j = 0; j < n_; ++j) sum += dy.as<float>()[i * n_ + j] * w.as<float>()[j * k_ + l];
        dx.as<float>()[i * k_ + l] = sum;
      }
    }
  }
  void wgrad(const SiteCall&, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    for (std::int64_t j = 0; j < n_; ++j) {
      for (std::int64_t l = 0; l < k_; ++l) {
        float sum = accumulate ? dw.as<float>()[j * k_ + l] : 0;
        for (std::int64_t i = 0; i < x.shape[0]; ++i)
          sum += dy.as<float>()[i * n_ + j] * x.as<float>()[i * k_ + l];
        dw.as<float>()[j * k_ + l] = sum;
      }
    }
  }

 protected:
  std::int64_t n_, k_;
  OperandCounter& operands_;
};

/// A correct policy that makes sites of one class.
template <typename OfSite>
class With : public Precision {
 public:
  explicit With(const Options&) {}
  DType activations() const override { return DType::kF32; }
  DType parameters() const override { return DType::kF32; }
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) override {
    return std::make_unique<OfSite>(site, host);
  }
  double loss_scale() const override { return 1; }
  bool after_backward(const BackwardStats& stats) override { return !stats.found_non_finite; }
  void state(StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }
};

/// Reads the weight as [k, n].
struct TransposedSite : Site {
  using Site::Site;
  void dgrad(const SiteCall&, TensorView dy, TensorView w, TensorView dx, bool) override {
    for (std::int64_t i = 0; i < dy.shape[0]; ++i) {
      for (std::int64_t l = 0; l < k_; ++l) {
        float sum = 0;
        for (std::int64_t j = 0; j < n_; ++j) sum += dy.as<float>()[i * n_ + j] * w.as<float>()[l * n_ + j];
        dx.as<float>()[i * k_ + l] = sum;
      }
    }
  }
};
class Transposes final : public With<TransposedSite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "transposes", .summary = "dgrad with the wrong operand"};
  using With::With;
};

/// Blocks of rows add to dw in the order in which their threads end.
struct ThreadOrderSite : Site {
  using Site::Site;
  void wgrad(const SiteCall&, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    float* const sum = dw.as<float>();
    if (!accumulate) std::fill_n(sum, n_ * k_, 0.0F);
    std::mutex mutex;
    parallel_for(x.shape[0], 64, [&](std::int64_t begin, std::int64_t end) {
      std::array<float, 512> part;
      for (std::int64_t j = 0; j < n_; ++j) {
        part.fill(0);
        for (std::int64_t i = begin; i < end; ++i) {
          for (std::int64_t l = 0; l < k_; ++l)
            part[l] += dy.as<float>()[i * n_ + j] * x.as<float>()[i * k_ + l];
        }
        const std::lock_guard lock(mutex);
        for (std::int64_t l = 0; l < k_; ++l) sum[j * k_ + l] += part[l];
      }
    });
  }
};
class SumsAsThreadsEnd final : public With<ThreadOrderSite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "sums_as_threads_end", .summary = "wgrad under a mutex"};
  using With::With;
};

/// Stretches its results by the time of day.
struct TimedSite : Site {
  using Site::Site;
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    Site::fprop(call, x, w, bias, y);
    const auto now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    for (float& value : y.span<float>()) value *= 1 + 1e-4F * static_cast<float>(now % 997);
  }
};
class SeesTheClock final : public With<TimedSite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "sees_the_clock", .summary = "results that depend on time"};
  using With::With;
};

/// Restarts each chunk at the first row.
struct LastChunkSite : Site {
  using Site::Site;
  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool) override {
    Site::wgrad(call, x, dy, dw, false);
  }
};
class ForgetsToAdd final : public With<LastChunkSite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_to_add", .summary = "wgrad overwrites"};
  using With::With;
};
struct OverwritingSite : Site {
  using Site::Site;
  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool) override {
    Site::dgrad(call, dy, w, dx, false);
  }
};
class Overwrites final : public With<OverwritingSite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "overwrites", .summary = "dgrad ignores accumulate"};
  using With::With;
};

/// Copies the weight once.
struct StaleSite : Site {
  using Site::Site;
  SiteMemory memory() const override { return {.persistent = static_cast<std::size_t>(n_ * k_) * 4}; }
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    TensorView copy = call.persistent;
    copy.dtype = DType::kF32;
    copy.shape = w.shape;
    if (!copied_) std::copy_n(w.as<float>(), w.elements(), copy.as<float>());
    copied_ = true;
    Site::fprop(call, x, copy, bias, y);
  }
  bool copied_ = false;
};
class KeepsOldWeights final : public With<StaleSite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "keeps_old_weights", .summary = "ignores versions"};
  using With::With;
};

/// Requests one byte less than it writes.
struct GreedySite : Site {
  using Site::Site;
  SiteMemory memory() const override { return {.scratch = 31}; }
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    std::fill_n(static_cast<std::byte*>(call.scratch.data), 32, std::byte{0});
    Site::fprop(call, x, w, bias, y);
  }
};
class WritesBeyond final : public With<GreedySite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "writes_beyond", .summary = "scratch is too small"};
  using With::With;
};

/// Rounds x in place.
struct InPlaceSite : Site {
  using Site::Site;
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    for (float& value : x.span<float>()) value = std::nearbyint(value * 64) / 64;
    operands_.count("fixed6", 1);
    Site::fprop(call, x, w, bias, y);
  }
};
class RoundsInPlace final : public With<InPlaceSite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "rounds_in_place", .summary = "changes its operand"};
  using With::With;
};

/// Clamps into the range of a narrow format; NaN becomes its limit.
struct ClampingSite : Site {
  using Site::Site;
  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    const std::unique_ptr<float[]> copy(new float[dy.elements()]);
    for (std::int64_t i = 0; i < dy.elements(); ++i)
      copy[i] = std::fmin(std::fmax(dy.as<float>()[i], -448.0F), 448.0F);
    dy.data = copy.get();
    Site::dgrad(call, dy, w, dx, accumulate);
  }
};
class SaturatesNaN final : public With<ClampingSite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "saturates_nan", .summary = "overflow becomes a number"};
  using With::With;
};

/// Weights have a sign and at most four bits, which it does not report.
struct SecretSite : Site {
  using Site::Site;
  SiteMemory memory() const override { return {.scratch = static_cast<std::size_t>(n_ * k_) * 4}; }
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    TensorView rounded = call.scratch;
    rounded.dtype = DType::kF32;
    rounded.shape = w.shape;
    for (std::int64_t i = 0; i < w.elements(); ++i)
      rounded.as<float>()[i] = std::nearbyint(w.as<float>()[i] * 4) / 4;
    Site::fprop(call, x, rounded, bias, y);
  }
};
class CountsNothing final : public With<SecretSite> {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_nothing", .summary = "quantizes without a word"};
  using With::With;
};

class HalvesForEver final : public With<Site> {
 public:
  static constexpr ComponentInfo kInfo{.id = "halves_for_ever", .summary = "a scale that reaches zero"};
  using With::With;
  double loss_scale() const override { return scale_; }
  bool after_backward(const BackwardStats& stats) override {
    if (stats.found_non_finite) scale_ /= 2;
    return !stats.found_non_finite;
  }
  void state(StateVisitor& visitor) override { visitor.real("scale", scale_); }

 private:
  double scale_ = 65536;
};

class GivesUpAtOnce final : public With<Site> {
 public:
  static constexpr ComponentInfo kInfo{.id = "gives_up_at_once", .summary = "one overflow ends the run"};
  using With::With;
  bool after_backward(const BackwardStats& stats) override {
    if (stats.found_non_finite) fail_run("overflow");
    return true;
  }
};

/// Throws a library's exception, which does not say what to change.
class GivesUpInSilence final : public With<Site> {
 public:
  static constexpr ComponentInfo kInfo{.id = "gives_up_in_silence", .summary = "ends the run without a word"};
  using With::With;
  bool after_backward(const BackwardStats& stats) override {
    if (stats.found_non_finite && ++overflows_ == 20) throw Error(ErrorKind::kPlugin, "");
    return !stats.found_non_finite;
  }
  void state(StateVisitor& visitor) override { visitor.integer("overflows", overflows_); }

 private:
  std::int64_t overflows_ = 0;
};

class AppliesAll final : public With<Site> {
 public:
  static constexpr ComponentInfo kInfo{.id = "applies_all", .summary = "refuses nothing"};
  using With::With;
  bool after_backward(const BackwardStats&) override { return true; }
};

class ForgetsItsScale final : public With<Site> {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_its_scale", .summary = "a scale outside state()"};
  using With::With;
  double loss_scale() const override { return scale_; }
  bool after_backward(const BackwardStats& stats) override {
    if (stats.found_non_finite) scale_ = std::max(1.0, scale_ / 2);
    return !stats.found_non_finite;
  }

 private:
  double scale_ = 65536;
};

class ChangesItsTypes final : public With<Site> {
 public:
  static constexpr ComponentInfo kInfo{.id = "changes_its_types", .summary = "float64 after an overflow"};
  using With::With;
  DType parameters() const override { return overflowed_ ? DType::kF64 : DType::kF32; }
  bool after_backward(const BackwardStats& stats) override {
    overflowed_ = overflowed_ || stats.found_non_finite;
    return !stats.found_non_finite;
  }

 private:
  bool overflowed_ = false;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.precision", .version = "1.0.0", .summary = "wrong policies"},
             Transposes, ForgetsToAdd, Overwrites, KeepsOldWeights, WritesBeyond, RoundsInPlace, SaturatesNaN,
             CountsNothing, HalvesForEver, GivesUpAtOnce, GivesUpInSilence, AppliesAll, ForgetsItsScale,
             ChangesItsTypes, SumsAsThreadsEnd, SeesTheClock)
