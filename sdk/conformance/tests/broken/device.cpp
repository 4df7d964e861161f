// Devices around a correct one (option inner) that break one promise each.
#include <tenon/device.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/formula.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/plugin.hpp>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace tenon;

constexpr OptionSpec kInner[] = {option::component("inner", "device/1").mandatory().doc_text("a good one")};

class Around : public Device {
 public:
  explicit Around(const Options& options) : inner_(options.component<Device>("inner")) {}
  void open(const DeviceSpec& spec) override { inner_->open(spec); }
  MemorySpace space() const override { return inner_->space(); }
  void* allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept override { inner_->release(memory, bytes); }
  void copy(TensorView from, TensorView to) override { inner_->copy(from, to); }
  void synchronize() override { inner_->synchronize(); }
  std::string_view kernel_choice() const override { return inner_->kernel_choice(); }
  std::string_view features() const override { return inner_->features(); }
  void* query(std::string_view id) override { return inner_->query(id); }

 protected:
  template <typename Family>
  Family& good() {
    return *static_cast<Family*>(inner_->query(Family::kId));
  }
  Device* inner_;
};

class LeavesDirt final : public Around {
 public:
  static constexpr ComponentInfo kInfo{.id = "leaves_dirt", .summary = "memory as it was", .options = kInner};
  using Around::Around;
  void* allocate(std::size_t bytes) override {
    void* const memory = inner_->allocate(bytes);
    if (bytes >= 4096) std::memset(memory, 0xCD, 32);
    return memory;
  }
};

class CopiesTooLittle final : public Around {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "copies_too_little", .summary = "whole lines only", .options = kInner};
  using Around::Around;
  void copy(TensorView from, TensorView to) override {
    if (from.dtype != DType::kBF16 || from.elements() < 64) return inner_->copy(from, to);
    from.shape = to.shape = Shape{from.elements() / 32 * 32};
    inner_->copy(from, to);
  }
};

class IgnoresBias final : public Around, public Blas {
 public:
  static constexpr ComponentInfo kInfo{.id = "ignores_bias", .summary = "no bias", .options = kInner};
  using Around::Around;
  std::unique_ptr<Gemm> gemm(const GemmSpec& spec) override {
    GemmSpec without = spec;
    without.bias = false;
    return good<Blas>().gemm(without);
  }
  bool native(DType operand) const override { return operand == DType::kF32; }
  void* query(std::string_view id) override {
    return id == Blas::kId ? static_cast<Blas*>(this) : inner_->query(id);
  }
};

/// Products that share one buffer between all plans.
class SharesABuffer final : public Around, public Blas {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "shares_a_buffer", .summary = "one buffer for all plans", .options = kInner};
  using Around::Around;
  std::unique_ptr<Gemm> gemm(const GemmSpec& spec) override {
    return std::make_unique<Shared>(good<Blas>().gemm(spec), spec);
  }
  bool native(DType operand) const override { return operand == DType::kF32; }
  void* query(std::string_view id) override {
    return id == Blas::kId ? static_cast<Blas*>(this) : inner_->query(id);
  }

 private:
  struct Shared final : Gemm {
    Shared(std::unique_ptr<Gemm> gemm, const GemmSpec& spec) : inner(std::move(gemm)), given(spec) {}
    std::size_t scratch_bytes() const override { return inner->scratch_bytes(); }
    void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
             TensorView scratch) override {
      static float buffer[1 << 16];
      if (given.accumulate || c.dtype != DType::kF32) return inner->run(a, b, c, bias, alpha, scratch);
      TensorView result = c;
      result.data = buffer;
      inner->run(a, b, result, bias, alpha, scratch);
      std::this_thread::sleep_for(
          std::chrono::microseconds(200));  // so that the other thread runs in between
      std::memcpy(c.data, buffer, c.bytes());
    }
    std::unique_ptr<Gemm> inner;
    GemmSpec given;
  };
};

class LerpsTheOtherWay final : public Around, public Elementwise {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "lerps_the_other_way", .summary = "weights exchanged", .options = kInner};
  using Around::Around;
  void fill(TensorView y, double value) override { good<Elementwise>().fill(y, value); }
  void scale(TensorView y, double factor) override { good<Elementwise>().scale(y, factor); }
  void axpy(double a, TensorView x, TensorView y) override { good<Elementwise>().axpy(a, x, y); }
  void lerp(TensorView y, TensorView x, double weight) override {
    good<Elementwise>().lerp(y, x, 1 - weight);
  }
  void subtract(TensorView a, TensorView b, TensorView y) override { good<Elementwise>().subtract(a, b, y); }
  std::int64_t subtract_targets(TensorView a, TensorView b, TensorView y) override {
    return good<Elementwise>().subtract_targets(a, b, y);
  }
  void add(TensorView a, TensorView b, TensorView y) override { good<Elementwise>().add(a, b, y); }
  void convert(TensorView x, TensorView y) override { good<Elementwise>().convert(x, y); }
  void add_bias(TensorView x, TensorView bias, TensorView y) override {
    good<Elementwise>().add_bias(x, bias, y);
  }
  void* query(std::string_view id) override {
    return id == Elementwise::kId ? static_cast<Elementwise*>(this) : inner_->query(id);
  }
};

class MissesNaN final : public Around, public ReduceOps {
 public:
  static constexpr ComponentInfo kInfo{.id = "misses_nan", .summary = "all is finite", .options = kInner};
  using Around::Around;
  double sum(TensorView x) override { return good<ReduceOps>().sum(x); }
  double sum_of_squares(TensorView x) override { return good<ReduceOps>().sum_of_squares(x); }
  double absolute_max(TensorView x) override { return good<ReduceOps>().absolute_max(x); }
  std::int64_t first_non_finite(TensorView) override { return -1; }
  void sum_rows(TensorView x, TensorView out, bool accumulate, TensorView scratch) override {
    good<ReduceOps>().sum_rows(x, out, accumulate, scratch);
  }
  std::size_t sum_rows_scratch(std::int64_t rows, std::int64_t columns, DType dtype) const override {
    return static_cast<ReduceOps*>(inner_->query(ReduceOps::kId))->sum_rows_scratch(rows, columns, dtype);
  }
  void* query(std::string_view id) override {
    return id == ReduceOps::kId ? static_cast<ReduceOps*>(this) : inner_->query(id);
  }
};

class LeavesTheRest final : public Around, public FormulaOps {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "leaves_the_rest", .summary = "formulas over whole vectors only", .options = kInner};
  using Around::Around;
  void evaluate(const Formula& formula, std::span<const TensorView> tensors,
                std::span<double> sums) override {
    std::vector<TensorView> whole(tensors.begin(), tensors.end());
    for (TensorView& view : whole) view.shape = Shape{view.elements() / 16 * 16};
    good<FormulaOps>().evaluate(formula, whole, sums);
  }
  void* query(std::string_view id) override {
    return id == FormulaOps::kId ? static_cast<FormulaOps*>(this) : inner_->query(id);
  }
};

class SeesAWindow final : public Around, public Attention {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "sees_a_window", .summary = "five kept keys at most", .options = kInner};
  using Around::Around;
  std::unique_ptr<AttentionKernel> prepare(const AttentionSpec& spec) override {
    return good<Attention>().prepare(spec);
  }
  std::unique_ptr<CachedAttentionKernel> prepare_cached(const CachedAttentionSpec& spec) override {
    CachedAttentionSpec near = spec;
    near.window = 5;
    return good<Attention>().prepare_cached(near);
  }
  void* query(std::string_view id) override {
    return id == Attention::kId ? static_cast<Attention*>(this) : inner_->query(id);
  }
};

class DrawsAlike final : public Around, public QuantOps {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "draws_alike", .summary = "the same draws in every step", .options = kInner};
  using Around::Around;
  std::unique_ptr<QuantizeKernel> quantizer(const QuantizeSpec& spec) override {
    return std::make_unique<Alike>(good<QuantOps>().quantizer(spec));
  }
  void scale_product(TensorView p, const ProductScales& a, const ProductScales& b, TensorView c,
                     bool accumulate) override {
    good<QuantOps>().scale_product(p, a, b, c, accumulate);
  }
  HalfCount round_to_f16(TensorView x, TensorView y) override { return good<QuantOps>().round_to_f16(x, y); }
  void* query(std::string_view id) override {
    return id == QuantOps::kId ? static_cast<QuantOps*>(this) : inner_->query(id);
  }

 private:
  struct Alike final : QuantizeKernel {
    explicit Alike(std::unique_ptr<QuantizeKernel> kernel) : inner(std::move(kernel)) {}
    std::int64_t padded_rows() const override { return inner->padded_rows(); }
    std::size_t code_bytes() const override { return inner->code_bytes(); }
    std::size_t scale_bytes() const override { return inner->scale_bytes(); }
    std::size_t scratch_bytes() const override { return inner->scratch_bytes(); }
    bool needs_amax() const override { return inner->needs_amax(); }
    float amax(TensorView x, TensorView scratch) override { return inner->amax(x, scratch); }
    float run(TensorView x, float amax, const QuantizeDraws& draws, const QuantizeOutput& out,
              TensorView scratch, QuantizeStats* stats) override {
      QuantizeDraws first = draws;
      first.step = 0;
      return inner->run(x, amax, first, out, scratch, stats);
    }
    void decode(TensorView codes, TensorView scales, TensorView values) override {
      inner->decode(codes, scales, values);
    }
    std::unique_ptr<QuantizeKernel> inner;
  };
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.device", .version = "1.0.0", .summary = "wrong devices"}, LeavesDirt,
             CopiesTooLittle, IgnoresBias, SeesAWindow, SharesABuffer, LerpsTheOtherWay, MissesNaN,
             LeavesTheRest, DrawsAlike)
