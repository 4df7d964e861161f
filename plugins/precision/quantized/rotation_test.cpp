// Rotation of operands, as seen by a device that records the requests to its quantizers; and a device without
// quantizers.
#include "testing.hpp"

#include <tenon/ops/quant.hpp>

#include <gtest/gtest.h>

#include <set>

namespace tenon::quantized {
namespace {

using testing::Bench;
using testing::Rig;
using testing::site_info;

/// One call of a quantizer.
struct Call {
  QuantizeSpec spec;
  bool values, codes;
  RandomKey key;
};

class WatchedKernel final : public QuantizeKernel {
 public:
  WatchedKernel(std::unique_ptr<QuantizeKernel> inner, const QuantizeSpec& spec, std::vector<Call>& calls)
      : inner_(std::move(inner)), spec_(spec), calls_(calls) {}
  std::int64_t padded_rows() const override { return inner_->padded_rows(); }
  std::size_t code_bytes() const override { return inner_->code_bytes(); }
  std::size_t scale_bytes() const override { return inner_->scale_bytes(); }
  std::size_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  bool needs_amax() const override { return inner_->needs_amax(); }
  float amax(TensorView x, TensorView scratch) override { return inner_->amax(x, scratch); }
  float run(TensorView x, float amax, const QuantizeDraws& draws, const QuantizeOutput& out,
            TensorView scratch, QuantizeStats* stats) override {
    calls_.push_back({spec_, !out.values.empty(), !out.codes.empty(), draws.key});
    return inner_->run(x, amax, draws, out, scratch, stats);
  }
  void decode(TensorView codes, TensorView scales, TensorView values) override {
    inner_->decode(codes, scales, values);
  }

 private:
  std::unique_ptr<QuantizeKernel> inner_;
  QuantizeSpec spec_;
  std::vector<Call>& calls_;
};

class WatchedOps final : public QuantOps {
 public:
  WatchedOps(QuantOps& inner, std::vector<Call>& calls) : inner_(inner), calls_(calls) {}
  std::unique_ptr<QuantizeKernel> quantizer(const QuantizeSpec& spec) override {
    return std::make_unique<WatchedKernel>(inner_.quantizer(spec), spec, calls_);
  }
  void scale_product(TensorView p, const ProductScales& a, const ProductScales& b, TensorView c,
                     bool accumulate) override {
    inner_.scale_product(p, a, b, c, accumulate);
  }
  HalfCount round_to_f16(TensorView x, TensorView y) override { return inner_.round_to_f16(x, y); }

 private:
  QuantOps& inner_;
  std::vector<Call>& calls_;
};

/// The device of a bench with recorded quantizers, or without quantizers.
class WatchedDevice final : public Device {
 public:
  WatchedDevice(Device& inner, bool quantizes)
      : inner_(inner), ops_(inner.family<QuantOps>(), calls), quantizes_(quantizes) {}
  void open(const DeviceSpec& spec) override { inner_.open(spec); }
  MemorySpace space() const override { return inner_.space(); }
  void* allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept override { inner_.release(memory, bytes); }
  void copy(TensorView from, TensorView to) override { inner_.copy(from, to); }
  void synchronize() override { inner_.synchronize(); }
  std::string_view kernel_choice() const override { return inner_.kernel_choice(); }
  std::string_view features() const override { return inner_.features(); }
  void* query(std::string_view id) override {
    if (id == QuantOps::kId) return quantizes_ ? static_cast<QuantOps*>(&ops_) : nullptr;
    return inner_.query(id);
  }

  std::vector<Call> calls;

 private:
  Device& inner_;
  WatchedOps ops_;
  bool quantizes_;
};

TEST(Rotation, P20_OnlyTheOperandsOfWgradAreRotatedAlongTheTokens) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("nvfp4", "");
  WatchedDevice device(*bench.device, true);
  Rig rig(device, *precision, site_info(37, 48, 64));  // 37 tokens: the rotation pads to 48 with zeros
  const auto rotated = [&](auto run) {
    device.calls.clear();
    run();
    int count = 0;
    for (const Call& call : device.calls) {
      if (!call.spec.rotate) continue;
      ++count;
      EXPECT_EQ(call.spec.block_rows, 16) << "along m, never along k or n";
      EXPECT_EQ(call.spec.block_columns, 1);
      EXPECT_EQ(call.spec.rows, 37);
    }
    return count;
  };
  rig.call.training = false;
  EXPECT_EQ(rotated([&] { rig.fprop(); }), 0) << "an evaluation";
  rig.call.training = true;
  EXPECT_EQ(rotated([&] { rig.fprop(); }), 1);
  for (const Call& call : device.calls) {
    if (!call.spec.rotate) continue;
    EXPECT_EQ(call.spec.columns, 64) << "x for wgrad";
    EXPECT_TRUE(call.codes && !call.values) << "kept, not multiplied here";
  }
  EXPECT_EQ(rotated([&] { rig.dgrad(); }), 0);
  EXPECT_EQ(rotated([&] { rig.wgrad(); }), 1);
  EXPECT_EQ(device.calls.size(), 1u) << "dy alone: x comes from its codes";
}

TEST(Rotation, P25_BothCopiesOfAGradientHaveAStreamOfTheirOwn) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("nvfp4", "");
  WatchedDevice device(*bench.device, true);
  Rig rig(device, *precision, site_info(32, 48, 64)), other(device, *precision, site_info(32, 48, 64), 2);
  rig.step(0);
  other.step(0);
  std::set<std::pair<std::uint32_t, std::uint32_t>> keys;
  int draws = 0;
  for (const Call& call : device.calls) {
    if (call.spec.rounding != RoundingMode::kStochastic) continue;
    ++draws;
    keys.insert({call.key.words[0], call.key.words[1]});
  }
  EXPECT_EQ(draws, 4) << "dy for dgrad and for wgrad, in two runs of different seeds";
  EXPECT_EQ(keys.size(), 4u);
}

TEST(Rotation, AWeightIsRoundedOncePerVersion) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("nvfp4", "weights = \"1d\"");
  WatchedDevice device(*bench.device, true);
  Rig rig(device, *precision, site_info(16, 48, 64));
  const auto weights = [&](int slot) {
    device.calls.clear();
    rig.step(slot);
    int count = 0;
    for (const Call& call : device.calls) count += call.spec.input == DType::kF32 ? 1 : 0;
    return count;
  };
  EXPECT_EQ(weights(0), 2) << "along k and along n";
  EXPECT_EQ(weights(1), 0);
  ++rig.call.weight_version;
  EXPECT_EQ(weights(2), 2);
}

TEST(Rotation, P29_ADeviceWithoutQuantizersIsRefusedWhenSitesAreBuilt) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("nvfp4", "");
  WatchedDevice device(*bench.device, false);
  testing::TestHost host(device, 1);
  try {
    precision->bind(site_info(16, 16, 16), host);
    FAIL() << "a site was made";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tenon.device.quant/1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tenon::quantized
