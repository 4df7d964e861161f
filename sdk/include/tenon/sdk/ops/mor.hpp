// Operator family of a device for mixtures of representations (MoR). Optional: a device offers it to the
// policies that ask for it. Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

#include <memory>

TENON_ABI_BEGIN

/// Scaling strategy of a mixture of representations, which chooses a format for each block of a tensor (MoR,
/// arXiv 2512.22804).
enum class MorStrategy : std::uint8_t { kGam = 0, kBlock = 1, kE8 = 2, kCurrent = 3 };
enum class MorMode : std::uint8_t {
  kTensor = 0,        ///< the whole tensor in E4M3, or unchanged
  kQuantError = 1,    ///< per block E4M3, or unchanged, by error
  kDynamicRange = 2,  ///< per block E4M3, E5M2, or unchanged, by dynamic range
};
/// The format chosen for a block.
enum class MorChoice : std::uint8_t { kKeep = 0, kE4M3 = 1, kE5M2 = 2, kE2M3 = 3 };

struct MorSpec {
  std::int64_t rows = 0, columns = 0;
  DType input = DType::kBF16;
  std::int64_t block_rows = 128, block_columns = 128;  ///< 0 = the whole extent
  MorStrategy strategy = MorStrategy::kGam;
  MorMode mode = MorMode::kTensor;
  double threshold = 0.045;  ///< kTensor: largest mean relative error of E4M3
  bool e2m3 = false;         ///< block modes: E2M3 where the dynamic range is at most 7.5
};

struct MorDecision {
  MorChoice tensor = MorChoice::kKeep;    ///< kTensor: for the whole tensor
  std::int64_t blocks[4] = {0, 0, 0, 0};  ///< by MorChoice
  std::int64_t elements[4] = {0, 0, 0, 0};
  std::int64_t non_zero = 0;
  double error = 0;  ///< mean relative error of E4M3 over elements that are not zero
  float amax = 0;
  bool finite = true;  ///< false: values hold the input, so that non-finite numbers propagate
};

class MorKernel {
 public:
  virtual ~MorKernel();
  virtual std::size_t scratch_bytes() const = 0;
  virtual std::int64_t blocks() const = 0;
  /// values: bf16 [rows, columns]; choices: u8 [blocks()], or empty.
  virtual MorDecision run(TensorView x, TensorView values, TensorView choices, TensorView scratch) = 0;
};

class MorOps {
 public:
  static constexpr const char* kId = "tenon.device.mor/1";
  virtual ~MorOps();
  /// Throws Error(kConfig) with the reason for an undefined combination.
  virtual std::unique_ptr<MorKernel> prepare(const MorSpec& spec) = 0;
};

TENON_ABI_END
