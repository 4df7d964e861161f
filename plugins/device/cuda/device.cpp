// The devices `cuda` and `cuda_emulated`: memory, stream and operator families of one rank's device. The same
// sources are compiled twice: by nvcc for GPUs, and for the host, where kernels run as loops.
#include "common.hpp"
#include "facts.hpp"

#include <fmt/format.h>
#include <tenon/plugin.hpp>

#include <string>
#include <utility>
#include <vector>

namespace tenon::cuda {

class CudaDevice final : public Device {
 public:
#ifdef TENON_CUDA_EMULATED
  static constexpr auto kOrders = option::choice<LaunchOrder>({{"ascending", LaunchOrder::kAscending},
                                                               { "descending",
                                                                 LaunchOrder::kDescending }});
  static constexpr OptionSpec kOptions[] = {
      option::text("order", "\"ascending\"")
          .one_of(kOrders)
          .doc_text("in which order blocks and threads run; results may not depend on it"),
      option::boolean("guard", "true").doc_text("whether the host is kept from touching the device's memory"),
      option::integer("memory_mib", "0")
          .between(0, 1 << 24)
          .doc_text("how much memory it has; 0 = as much as there are addresses for"),
      option::integer("lose_at", "-1")
          .at_least(-1)
          .doc_text("for tests: the operation from which on it fails as a lost GPU does; -1 = none"),
      option::integer("lose_index", "-1")
          .between(-1, 65535)
          .doc_text("of the device that lose_at means, as ranks of a machine are numbered; -1 = each"),
      option::texts("models", "[]")
          .doc_text("for tests: what the devices say they are, by rank of the machine; [] = nothing")};
  static constexpr ComponentInfo kInfo{
      .id = "cuda_emulated",
      .summary = "the CUDA device's operators as loops on the host, in memory that nothing else may touch",
      .options = kOptions,
      .maturity = TENON_EXPERIMENTAL};
#else
  static constexpr OptionSpec kOptions[] = {
      option::integer("index", "-1")
          .between(-1, 65535)
          .doc_text("of the device among the visible ones; -1 = the rank's number on its machine"),
      option::boolean("tf32", "false")
          .doc_text(
              "whether libraries may round f32 operands of products and convolutions to 11 bits, for the "
              "speed of tensor cores")};
  static constexpr ComponentInfo kInfo{.id = "cuda",
                                       .summary = "memory and operators of NVIDIA GPUs",
                                       .options = kOptions,
                                       .maturity = TENON_EXPERIMENTAL};
#endif

  explicit CudaDevice(const Options& options);
  ~CudaDevice() override;

  void open(const DeviceSpec& spec) override;
  MemorySpace space() const override {
    return MemorySpace::kCuda;
  }
  void* allocate(std::size_t bytes) override;
  void release(void* memory, std::size_t bytes) noexcept override;
  void copy(TensorView from, TensorView to) override;
  void synchronize() override;
  std::string_view kernel_choice() const override {
    return choice_;
  }
  std::string_view features() const override;
  void* query(std::string_view interface_id) override;

 private:
  CudaFacts facts_{*this};
  int index_ = -1;
  std::int64_t lose_index_ = -1;     ///< emulated
  std::vector<std::string> models_;  ///< emulated
  QueueSpec spec_;
  std::string choice_, features_;
  mutable std::string described_;  ///< features_ and what has been opened since
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Streams> streams_;
  std::unique_ptr<Elementwise> elementwise_;
  std::unique_ptr<NeuralOps> neural_ops_;
  std::unique_ptr<NormalisationOps> normalisation_ops_;
  std::unique_ptr<PartNormOps> part_norm_ops_;
  std::unique_ptr<ReduceOps> reduce_ops_;
  std::unique_ptr<EmbeddingOps> embedding_ops_;
  std::unique_ptr<Blas> blas_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<FormulaOps> formula_ops_;
  std::unique_ptr<WindowOps> window_ops_;
  std::unique_ptr<Convolutions> convolutions_;
  std::unique_ptr<InteractionOps> interaction_ops_;
  std::unique_ptr<DivergenceOps> divergence_ops_;
  std::unique_ptr<StateDistanceOps> state_distance_ops_;
  std::unique_ptr<MultiplyOps> multiply_ops_;
  std::unique_ptr<StridedCopyOps> strided_copy_ops_;
  std::unique_ptr<SparseAxisOps> sparse_axis_ops_;
  std::unique_ptr<BatchedComplexGemms> batched_complex_gemms_;
  std::unique_ptr<SignOps> sign_ops_;
  std::unique_ptr<CausalConvs> causal_convs_;
  std::unique_ptr<Ssd> ssd_;
  std::unique_ptr<GatedNorms> gated_norms_;
  std::unique_ptr<TableRowOps> table_row_ops_;
  std::unique_ptr<QuantOps> quant_ops_;
  std::unique_ptr<MorOps> mor_ops_;
  std::unique_ptr<ScaledProducts> scaled_products_;
  std::unique_ptr<Fft> fft_;
  std::unique_ptr<BackgroundWork> background_;
};

CudaDevice::CudaDevice(const Options& options) {
#ifdef TENON_CUDA_EMULATED
  spec_.order = options.choice("order", kOrders);
  spec_.guard = options.boolean("guard");
  spec_.capacity = static_cast<std::size_t>(options.integer("memory_mib")) << 20;
  spec_.lose_at = options.integer("lose_at");
  lose_index_ = options.integer("lose_index");
  for (const std::string_view model : options.texts("models")) models_.emplace_back(model);
#else
  index_ = static_cast<int>(options.integer("index"));
  spec_.tf32 = options.boolean("tf32");
#endif
}

CudaDevice::~CudaDevice() = default;

void CudaDevice::open(const DeviceSpec& spec) {
  std::string reason;
  const int devices = usable_devices(reason);
  if (devices == 0)
    fail_config(fmt::format("device {}: {}; device.type = \"cpu\" goes without one", kDeviceName, reason));
  spec_.index = index_ >= 0 ? index_ : spec.local_rank;
  if (spec_.index >= devices) {
    fail_config(fmt::format(
        "device {}: rank {} of this machine wants device {}, but {} {} visible; lower parallel.ranks, or say "
        "device.index",
        kDeviceName, spec.local_rank, spec_.index, devices, devices == 1 ? "is" : "are"));
  }
  choice_ = kDeviceName;
  if (!spec.kernels.empty() && spec.kernels != "auto" && spec.kernels != choice_) {
    fail_config(fmt::format("device {}: kernels = '{}' is not available; this device offers 'auto', '{}'",
                            kDeviceName, spec.kernels, choice_));
  }
  if (lose_index_ >= 0 && lose_index_ != spec_.index) spec_.lose_at = -1;
  if (!models_.empty()) spec_.model = models_[static_cast<std::size_t>(spec_.index) % models_.size()];
  queue_ = std::make_unique<Queue>(spec_);
  streams_ = std::make_unique<Streams>(*queue_, spec_.index);
  features_ = queue_->description();
  elementwise_ = make_elementwise(*queue_);
  neural_ops_ = make_neural_ops(*queue_);
  normalisation_ops_ = make_normalisation_ops(*queue_);
  part_norm_ops_ = make_part_norm_ops(*queue_);
  reduce_ops_ = make_reduce_ops(*queue_);
  embedding_ops_ = make_embedding_ops(*queue_);
  blas_ = make_blas(*queue_);
  attention_ = make_attention(*queue_);
  formula_ops_ = make_formula_ops(*queue_);
  window_ops_ = make_window_ops(*queue_);
  convolutions_ = make_convolutions(*queue_);
  interaction_ops_ = make_interaction_ops(*queue_);
  divergence_ops_ = make_divergence_ops(*queue_);
  state_distance_ops_ = make_state_distance_ops(*queue_);
  multiply_ops_ = make_multiply_ops(*queue_);
  strided_copy_ops_ = make_strided_copy_ops(*queue_);
  sparse_axis_ops_ = make_sparse_axis_ops(*queue_);
  batched_complex_gemms_ = make_batched_complex_gemms(*queue_);
  sign_ops_ = make_sign_ops(*queue_);
  causal_convs_ = make_causal_convs(*queue_);
  ssd_ = make_ssd(*queue_);
  gated_norms_ = make_gated_norms(*queue_);
  table_row_ops_ = make_table_row_ops(*queue_);
  quant_ops_ = make_quant_ops(*queue_);
  mor_ops_ = make_mor_ops(*queue_);
  scaled_products_ = make_scaled_products(*queue_);
  fft_ = make_fft(*queue_);
  background_ = make_background(spec_);
}

void* CudaDevice::allocate(std::size_t bytes) {
  return queue_->allocate(bytes);
}

void CudaDevice::release(void* memory, std::size_t) noexcept {
  queue_->release(memory);
}

void CudaDevice::copy(TensorView from, TensorView to) {
  if (from.dtype != to.dtype || !(from.shape == to.shape)) {
    fail_run(fmt::format("device {}: copy from {} {} to {} {}: shape and dtype must be equal", kDeviceName,
                         dtype_name(from.dtype), from.shape.text(), dtype_name(to.dtype), to.shape.text()));
  }
  if (from.empty()) return;
  queue_->copy(from.data, from.space, to.data, to.space, from.bytes());
}

void CudaDevice::synchronize() {
  queue_->synchronize();
}

std::string_view CudaDevice::features() const {
  described_ = features_;
  if (blas_ != nullptr) described_ += ", " + describe_blas(*blas_);
  const std::string fft = fft_ == nullptr ? "" : describe_fft(*fft_);
  if (!fft.empty()) described_ += ", " + fft;
  const std::string convolutions = convolutions_ == nullptr ? "" : describe_convolutions(*convolutions_);
  if (!convolutions.empty()) described_ += ", " + convolutions;
  if (spec_.tf32) described_ += ", f32 by TF32 in libraries";
  return described_;
}

void* CudaDevice::query(std::string_view interface_id) {
  const std::pair<std::string_view, void*> offers[] = {
      {Elementwise::kId, elementwise_.get()},
      {NeuralOps::kId, neural_ops_.get()},
      {NormalisationOps::kId, normalisation_ops_.get()},
      {PartNormOps::kId, part_norm_ops_.get()},
      {ReduceOps::kId, reduce_ops_.get()},
      {EmbeddingOps::kId, embedding_ops_.get()},
      {Blas::kId, blas_.get()},
      {Attention::kId, attention_.get()},
      {FormulaOps::kId, formula_ops_.get()},
      {WindowOps::kId, window_ops_.get()},
      {Convolutions::kId, convolutions_.get()},
      {InteractionOps::kId, interaction_ops_.get()},
      {DivergenceOps::kId, divergence_ops_.get()},
      {StateDistanceOps::kId, state_distance_ops_.get()},
      {MultiplyOps::kId, multiply_ops_.get()},
      {StridedCopyOps::kId, strided_copy_ops_.get()},
      {SparseAxisOps::kId, sparse_axis_ops_.get()},
      {BatchedComplexGemms::kId, batched_complex_gemms_.get()},
      {SignOps::kId, sign_ops_.get()},
      {CausalConvs::kId, causal_convs_.get()},
      {Ssd::kId, ssd_.get()},
      {GatedNorms::kId, gated_norms_.get()},
      {TableRowOps::kId, table_row_ops_.get()},
      {QuantOps::kId, quant_ops_.get()},
      {MorOps::kId, mor_ops_.get()},
      {ScaledProducts::kId, scaled_products_.get()},
      {Fft::kId, fft_.get()},
      {BackgroundWork::kId, background_.get()}};
  for (const auto& [id, family] : offers) {
    if (id == interface_id) return family;
  }
  if (interface_id == DeviceStreams::kId) return static_cast<DeviceStreams*>(streams_.get());
  if (interface_id == DeviceEvents::kId) return static_cast<DeviceEvents*>(streams_.get());
  if (interface_id == DeviceAvailability::kId) return static_cast<DeviceAvailability*>(&facts_);
  if (interface_id == ComponentFacts::kId) return static_cast<ComponentFacts*>(&facts_);
  return nullptr;
}

}  // namespace tenon::cuda

#ifdef TENON_CUDA_EMULATED
TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.device_cuda_emulated",
                               .version = "0.1.0",
                               .summary = "device cuda_emulated: what the CUDA device does, on any machine"},
             tenon::cuda::CudaDevice)
#else
TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.device_cuda",
                               .version = "0.1.0",
                               .summary = "device cuda: NVIDIA GPUs"},
             tenon::cuda::CudaDevice)
#endif
