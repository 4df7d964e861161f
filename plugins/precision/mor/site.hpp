// One linear site under `mor`: every operand of its three products is rounded as decided, to BF16 numbers,
// and the device's BF16 product runs on them. The executor keeps x, which is decided again for wgrad; a
// weight is copied once per version. Blocks are relative to the dimension that a product sums over, so fprop
// and dgrad share a copy of the weight only if blocks are as long as wide.
#pragma once

#include "ledger.hpp"

#include <tenon/site_products.hpp>

#include <limits>
#include <string>

namespace tenon::mor {

class MorSite final : public LinearSite {
 public:
  MorSite(const SiteInfo& info, SiteHost& host, const Settings& settings, Ledger& ledger);
  ~MorSite() override;
  MorSite(const MorSite&) = delete;
  MorSite& operator=(const MorSite&) = delete;

  SiteMemory memory() const override;
  bool reads_input() const override { return true; }
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override;
  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override;
  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override;

 private:
  /// A weight as read by a product, in the site's persistent memory.
  struct Copy {
    std::size_t values = 0, choices = 0;  ///< offsets
    std::uint64_t version = std::numeric_limits<std::uint64_t>::max();
    const void* source = nullptr;
    Verdict verdict;
  };

  Operand& operand(Use use) { return operands_[index_of(use)]; }
  TensorView decided(const SiteCall& call, Use use, TensorView x, std::size_t offset);
  TensorView weight(const SiteCall& call, Use use, TensorView w);
  void record(const SiteCall& call, Use use, TensorView x, TensorView values, TensorView choices,
              const Verdict& verdict);

  const Settings& settings_;
  Ledger& ledger_;
  std::string layer_;
  int site_;
  std::int64_t n_, k_;
  Device& device_;
  OperandCounter& counter_;
  Decisions decisions_;
  SiteProducts products_;
  std::vector<Operand> operands_;  ///< by Use
  bool shares_;                    ///< fprop and dgrad share one copy of the weight
  Copy copies_[2];
  std::size_t persistent_ = 0;
  // Scratch: the product's, the decision's, then values and choices of up to two operands.
  std::size_t decide_at_ = 0, first_at_ = 0, second_at_ = 0, choices_at_ = 0, scratch_ = 0;
  HostStage input_here_, values_here_, choices_here_;  ///< for reports, which use host memory
};

}  // namespace tenon::mor
