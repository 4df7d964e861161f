// Component `importer.decoder`: Llama, Phi-3, Nemotron-H and Mamba-2 of Hugging Face transformers as settings
// of the model `decoder`. The names of their weights are in names.cpp and hybrid_names.cpp, which both
// directions use.
#pragma once

#include <tenon/options.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/outside_training.hpp>

namespace tenon::decoder {

enum class Architecture : std::uint8_t { kLlama, kPhi3, kNemotronH, kMamba2 };
inline constexpr const char* kLlamaName = "LlamaForCausalLM";
inline constexpr const char* kPhi3Name = "Phi3ForCausalLM";
inline constexpr const char* kNemotronHName = "NemotronHForCausalLM";
inline constexpr const char* kMamba2Name = "Mamba2ForCausalLM";

class Importer final : public ModelImporter {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "decoder", .summary = "Llama, Phi-3, Nemotron-H and Mamba-2 of Hugging Face as model decoder"};
  explicit Importer(const Options&) {}
  std::vector<std::string> architectures() const override {
    return {kLlamaName, kPhi3Name, kNemotronHName, kMamba2Name};
  }
  ModelDescription model(std::string_view architecture, const Value& settings) override;
  void* query(std::string_view) override { return nullptr; }
};

}  // namespace tenon::decoder
