// The device `cpu`: host memory and operators on x86-64. It chooses a kernel set by the processor's features,
// never by timing, and owns one object per operator family; the families themselves are in the files named
// after them.
#pragma once

#include "families.hpp"

#include <tenon/device.hpp>
#include <tenon/plugin.hpp>

#include <string>

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
  std::unique_ptr<UpdateOps> update_;
  std::unique_ptr<WindowOps> window_;
  std::unique_ptr<Convolutions> convolutions_;
  std::unique_ptr<NormalisationOps> normalisation_;
  std::unique_ptr<PartNormOps> part_norm_;
  std::unique_ptr<InteractionOps> interaction_;
  std::unique_ptr<LineSums> line_sums_;
  std::unique_ptr<SignOps> signs_;
  std::unique_ptr<QuantOps> quant_;
  std::unique_ptr<MorOps> mor_;
  std::unique_ptr<Fft> fft_;
  std::unique_ptr<ModeProducts> mode_products_;
};

}  // namespace tenon::cpu
