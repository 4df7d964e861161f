#include "device.hpp"

#include "memory.hpp"
#ifndef TENON_PORTABLE_THREADS
#include "gemm_onednn.hpp"
#endif

#include <fmt/format.h>
#include <tenon/kernels/dispatch.hpp>

#include <cstring>
#include <limits>
#include <vector>

namespace tenon::cpu {
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

}  // namespace

CpuDevice::CpuDevice(const Options&) {}

void CpuDevice::open(const DeviceSpec& spec) {
  const kernels::CpuFeatures features = kernels::detect_cpu_features();
  const Choice choice = choose(spec.kernels, features);
  set_parallel_threads(spec.threads);
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
  update_ = make_update_ops(kernels_);
  window_ = make_window_ops(kernels_);
  convolutions_ = make_convolutions(kernels_);
  normalisation_ = make_normalisation_ops(kernels_);
  part_norm_ = make_part_norm_ops();
  interaction_ = make_interaction_ops(kernels_);
  line_sums_ = make_line_sums();
  signs_ = make_sign_ops();
  quant_ = make_quant_ops(kernels_);
  mor_ = make_mor_ops(kernels_);
  fft_ = make_fft(kernels_);
  mode_products_ = make_mode_products(kernels_);
}

void* CpuDevice::allocate(std::size_t bytes) {
  return allocate_zeroed(bytes);
}

void CpuDevice::release(void* memory, std::size_t) noexcept {
  release_memory(memory);
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
    std::memcpy(target + begin, source + begin, static_cast<std::size_t>(end - begin));
  });
}

int CpuDevice::usable() const {
  return std::numeric_limits<int>::max();  // ranks share the processor
}

void* CpuDevice::query(std::string_view interface_id) {
  const std::pair<std::string_view, void*> offers[] = {{Blas::kId, blas_.get()},
                                                       {NeuralOps::kId, neural_.get()},
                                                       {Attention::kId, attention_.get()},
                                                       {EmbeddingOps::kId, embedding_.get()},
                                                       {Elementwise::kId, elementwise_.get()},
                                                       {ReduceOps::kId, reduce_.get()},
                                                       {UpdateOps::kId, update_.get()},
                                                       {WindowOps::kId, window_.get()},
                                                       {Convolutions::kId, convolutions_.get()},
                                                       {NormalisationOps::kId, normalisation_.get()},
                                                       {PartNormOps::kId, part_norm_.get()},
                                                       {InteractionOps::kId, interaction_.get()},
                                                       {LineSums::kId, line_sums_.get()},
                                                       {SignOps::kId, signs_.get()},
                                                       {QuantOps::kId, quant_.get()},
                                                       {MorOps::kId, mor_.get()},
                                                       {Fft::kId, fft_.get()},
                                                       {ModeProducts::kId, mode_products_.get()}};
  if (interface_id == DeviceAvailability::kId) return static_cast<DeviceAvailability*>(this);
  for (const auto& [id, family] : offers) {
    if (id == interface_id) return family;
  }
  return nullptr;
}

}  // namespace tenon::cpu
