// The device `cpu`: operators on x86-64. It chooses a kernel set by the processor's features,
// never by timing, and owns one object per operator family; the families themselves are in the files named
// after them.
#include "common.hpp"
#ifndef TENON_PORTABLE_THREADS
#include "gemm.hpp"
#endif
#include "host_memory.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/kernels/dispatch.hpp>
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace tenon::cpu {

class CpuDevice final : public Device, public DeviceAvailability {
 public:
  static constexpr ComponentInfo kInfo{.id = "cpu", .summary = "memory and operators of x86-64 processors"};

  explicit CpuDevice(const Options& options);

  void open(const DeviceSpec& spec) override;
  MemorySpace space() const override { return MemorySpace::kHost; }
  void* allocate(std::size_t bytes) override;
  void release(void* memory, std::size_t bytes) noexcept override;
  void copy(TensorView from, TensorView to) override;
  void synchronize() override {}
  std::string_view kernel_choice() const override { return choice_; }
  std::string_view features() const override { return features_; }
  void* query(std::string_view interface_id) override;

  /// Always there, so the last choice.
  int preference() const override { return 1; }
  int usable() const override;
  std::string_view reason() const override { return ""; }

 private:
  Kernels kernels_;
  std::string choice_, features_;
  std::unique_ptr<Blas> blas_;
  std::unique_ptr<NeuralOps> neural_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<EmbeddingOps> embedding_;
  std::unique_ptr<Elementwise> elementwise_;
  std::unique_ptr<ReduceOps> reduce_;
  std::unique_ptr<FormulaOps> formula_;
  std::unique_ptr<WindowOps> window_;
  std::unique_ptr<Convolutions> convolutions_;
  std::unique_ptr<NormalisationOps> normalisation_;
  std::unique_ptr<PartNormOps> part_norm_;
  std::unique_ptr<InteractionOps> interaction_;
  std::unique_ptr<DivergenceOps> divergence_;
  std::unique_ptr<StateDistanceOps> state_distance_;
  std::unique_ptr<MultiplyOps> multiply_;
  std::unique_ptr<SparseAxisOps> sparse_axis_ops_;
  std::unique_ptr<SignOps> signs_;
  std::unique_ptr<CausalConvs> causal_convs_;
  std::unique_ptr<Ssd> ssd_;
  std::unique_ptr<GatedNorms> gated_norms_;
  std::unique_ptr<TableRowOps> table_row_ops_;
  std::unique_ptr<QuantOps> quant_;
  std::unique_ptr<MorOps> mor_;
  std::unique_ptr<Fft> fft_;
  std::unique_ptr<BatchedComplexGemms> batched_complex_gemms_;
};

namespace {

#ifdef TENON_PORTABLE_THREADS
std::string onednn_suffix() {
  return "";
}
#else
std::string onednn_suffix() {
  return "+onednn-" + onednn_version();
}
#endif

struct Choice {
  std::string name;
  std::string_view set;
  bool onednn = false;
};

/// Best first. Sets with oneDNN come before those without: its products are faster.
std::vector<Choice> choices(const kernels::CpuFeatures& features) {
#ifdef TENON_PORTABLE_THREADS
  return {{"reference", "reference", false}};
#else
  std::vector<Choice> result;
  const std::vector<std::string_view> sets = kernels::kernel_names(features);
  for (std::string_view set : sets) {
    if (set != "reference") result.push_back({std::string(set) + onednn_suffix(), set, true});
  }
  for (std::string_view set : sets) result.push_back({std::string(set), set, false});
  return result;
#endif
}

Choice choose(std::string_view wanted, const kernels::CpuFeatures& features) {
  const std::vector<Choice> all = choices(features);
  if (wanted.empty() || wanted == "auto") return all.front();
  std::string names;
  for (const Choice& choice : all) {
    if (choice.name == wanted) return choice;
    names += ", '" + choice.name + "'";
  }
  fail_config(fmt::format(
      "device cpu: kernels = '{}' is not available; this processor and build offer 'auto'{}", wanted, names));
}

std::string text(const kernels::CpuFeatures& features) {
  const std::pair<bool, const char*> flags[] = {{features.avx2, "avx2"},
                                                {features.avx512, "avx512"},
                                                {features.avx512_bf16, "avx512_bf16"},
                                                {features.amx_bf16, "amx_bf16"}};
  std::string result;
  for (const auto& [present, name] : flags) {
    if (present) result += (result.empty() ? "" : " ") + std::string(name);
  }
  return result;
}

/// Bytes of the stack of the calling thread; kUnknown where the system does not tell.
std::int64_t stack_bytes() {
  constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return kUnknown;
  void* lowest = nullptr;
  std::size_t bytes = 0;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  if (!known || bytes > static_cast<std::size_t>(kUnknown)) return kUnknown;
  return static_cast<std::int64_t>(bytes);
}

/// Twice what a run with the largest blocks on the stack (products of `avx512`) was seen to need.
constexpr std::int64_t kSmallestStack = std::int64_t{256} << 10;

/// Refuses a stack that the operators would overflow: that of a rank, or of a thread that works for it.
void require_stack() {
  std::atomic<std::int64_t> smallest{stack_bytes()};
  parallel_for(parallel_threads(), 1, [&](std::int64_t, std::int64_t) {
    const std::int64_t mine = stack_bytes();
    std::int64_t known = smallest.load();
    while (mine < known && !smallest.compare_exchange_weak(known, mine)) {
    }
  });
  if (smallest.load() >= kSmallestStack) return;
  fail_run(
      fmt::format("device cpu: a thread has {} KiB of stack, and the operators need {} KiB; raise the "
                  "limit (ulimit -s, OMP_STACKSIZE)",
                  smallest.load() >> 10, kSmallestStack >> 10));
}

}  // namespace

CpuDevice::CpuDevice(const Options&) {}

void CpuDevice::open(const DeviceSpec& spec) {
  const kernels::CpuFeatures features = kernels::detect_cpu_features();
  const Choice choice = choose(spec.kernels, features);
  set_parallel_threads(spec.threads);
  require_stack();
  kernels_ = {.table = kernels::select_kernels(choice.set, features),
              .f64 = &kernels::reference_double_kernels(),
              .onednn = choice.onednn};
  choice_ = choice.name;
  features_ = text(features);
  blas_ = make_blas(kernels_);
  neural_ = make_neural_ops(kernels_);
  attention_ = make_attention(kernels_);
  embedding_ = make_embedding_ops(kernels_);
  elementwise_ = make_elementwise(kernels_);
  reduce_ = make_reduce_ops(kernels_);
  formula_ = make_formula_ops(kernels_);
  window_ = make_window_ops(kernels_);
  convolutions_ = make_convolutions(kernels_);
  normalisation_ = make_normalisation_ops(kernels_);
  part_norm_ = make_part_norm_ops();
  interaction_ = make_interaction_ops(kernels_);
  divergence_ = make_divergence_ops(kernels_);
  state_distance_ = make_state_distance_ops();
  multiply_ = make_multiply_ops();
  sparse_axis_ops_ = make_sparse_axis_ops();
  signs_ = make_sign_ops();
  causal_convs_ = make_causal_convs(kernels_);
  ssd_ = make_ssd(kernels_);
  gated_norms_ = make_gated_norms(kernels_);
  table_row_ops_ = make_table_row_ops();
  quant_ = make_quant_ops(kernels_);
  mor_ = make_mor_ops(kernels_);
  fft_ = make_fft(kernels_);
  batched_complex_gemms_ = make_batched_complex_gemms(kernels_);
}

void* CpuDevice::allocate(std::size_t bytes) {
  return allocate_zeroed(bytes);
}

void CpuDevice::release(void* memory, std::size_t) noexcept {
  release_zeroed(memory);
}

void CpuDevice::copy(TensorView from, TensorView to) {
  if (from.dtype != to.dtype || !(from.shape == to.shape)) {
    fail_run(fmt::format("device cpu: copy from {} {} to {} {}: shape and dtype must be equal",
                         dtype_name(from.dtype), from.shape.text(), dtype_name(to.dtype), to.shape.text()));
  }
  if (from.space != MemorySpace::kHost || to.space != MemorySpace::kHost)
    fail_run("device cpu: copy reaches host memory only; ask the device that owns the other side");
  if (from.empty() || from.data == to.data) return;
  const auto* source = static_cast<const std::byte*>(from.data);
  auto* target = static_cast<std::byte*>(to.data);
  parallel_for(from.bytes(), std::int64_t{1} << 20, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(target + begin, source + begin, end - begin);
  });
}

int CpuDevice::usable() const {
  return std::numeric_limits<int>::max();  // ranks share the processor
}

void* CpuDevice::query(std::string_view interface_id) {
  const std::pair<std::string_view, void*> offers[] = {
      {Blas::kId, blas_.get()},
      {NeuralOps::kId, neural_.get()},
      {Attention::kId, attention_.get()},
      {EmbeddingOps::kId, embedding_.get()},
      {Elementwise::kId, elementwise_.get()},
      {ReduceOps::kId, reduce_.get()},
      {FormulaOps::kId, formula_.get()},
      {WindowOps::kId, window_.get()},
      {Convolutions::kId, convolutions_.get()},
      {NormalisationOps::kId, normalisation_.get()},
      {PartNormOps::kId, part_norm_.get()},
      {InteractionOps::kId, interaction_.get()},
      {DivergenceOps::kId, divergence_.get()},
      {StateDistanceOps::kId, state_distance_.get()},
      {MultiplyOps::kId, multiply_.get()},
      {SparseAxisOps::kId, sparse_axis_ops_.get()},
      {SignOps::kId, signs_.get()},
      {CausalConvs::kId, causal_convs_.get()},
      {Ssd::kId, ssd_.get()},
      {GatedNorms::kId, gated_norms_.get()},
      {TableRowOps::kId, table_row_ops_.get()},
      {QuantOps::kId, quant_.get()},
      {MorOps::kId, mor_.get()},
      {Fft::kId, fft_.get()},
      {BatchedComplexGemms::kId, batched_complex_gemms_.get()}};
  if (interface_id == DeviceAvailability::kId) return static_cast<DeviceAvailability*>(this);
  for (const auto& [id, family] : offers) {
    if (id == interface_id) return family;
  }
  return nullptr;
}

}  // namespace tenon::cpu

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.device_cpu",
                               .version = "0.1.0",
                               .summary = "memory and operators of x86-64 processors"},
             tenon::cpu::CpuDevice)
