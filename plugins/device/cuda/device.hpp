// The devices `cuda` and `cuda_emulated`: memory, stream and operator families of one rank's device. The same
// sources are compiled twice: by nvcc for GPUs, and for the host, where kernels run as loops.
#pragma once

#include "facts.hpp"
#include "families.hpp"
#include "streams.hpp"

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
  std::unique_ptr<UpdateOps> update_ops_;
  std::unique_ptr<FormulaOps> formula_ops_;
  std::unique_ptr<WindowOps> window_ops_;
  std::unique_ptr<Convolutions> convolutions_;
  std::unique_ptr<InteractionOps> interaction_ops_;
  std::unique_ptr<BoxOps> box_ops_;
  std::unique_ptr<LineSums> line_sums_;
  std::unique_ptr<ModeProducts> mode_products_;
  std::unique_ptr<SignOps> sign_ops_;
  std::unique_ptr<QuantOps> quant_ops_;
  std::unique_ptr<MorOps> mor_ops_;
  std::unique_ptr<ScaledProducts> scaled_products_;
  std::unique_ptr<Fft> fft_;
};

}  // namespace tenon::cuda
