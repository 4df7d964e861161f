// Layer `gelu` (Hendrycks and Gimpel 2016): x Phi(x), exact or in the tanh form of GPT-2 and GPT-Neo.
#pragma once

#include "pointwise.hpp"

namespace tenon::nn {

class Gelu final : public Pointwise {
 public:
  static constexpr auto kForms =
      option::choice<Epilogue>({{"tanh", Epilogue::kGeluTanh}, {"none", Epilogue::kGeluExact}});
  static constexpr OptionSpec kOptions[] = {
      option::text("approximate", "\"tanh\"")
          .one_of(kForms)
          .doc_text("tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); none: x/2 (1 + erf(x / sqrt(2)))"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "gelu", .summary = "Gaussian error linear unit", .options = kOptions, .capabilities = kAnywhere};

  explicit Gelu(const Options& options) : Pointwise(options.choice("approximate", kForms), Reads::kInput) {}
};

}  // namespace tenon::nn
