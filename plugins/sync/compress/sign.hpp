// Sync `sign` (Karimireddy et al. 2019, arXiv 1901.09847): each replica sends one bit per element and one
// scale per tensor, mean |x| sign(x), to all others, with error feedback.
#pragma once

#include "compressor.hpp"

#include <tenon/plugin.hpp>
#include <tenon/sdk/ops/signs.hpp>

namespace tenon::sync_compress {

class Sign final : public Compressor {
 public:
  static constexpr OptionSpec kOptions[] = {
      kInner, start_after_option("0", "slots in which everything travels as it is"), kErrorFeedback};
  static constexpr ComponentInfo kInfo{
      .id = "sign",
      .summary = "signs of gradients, a scale per tensor, and error feedback",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit Sign(const Options& options) : Compressor("sign", options) {}

 protected:
  void prepare_part(std::size_t part) override;
  void begin(std::size_t part) override;
  void end(std::span<const std::size_t> parts) override;

 private:
  struct Bits {
    TensorView rows;                ///< u8 [K, row]: a scale in f32 per tensor, then each tensor's bits
    std::vector<SignPlace> places;  ///< of each tensor within a row
    TensorView scratch;
    Request request;
  };
  SignOps* ops_ = nullptr;
  std::vector<Bits> bits_;  ///< by part
};

}  // namespace tenon::sync_compress
