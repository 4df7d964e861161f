// Component `importer.decoder`: Llama and Phi-3 of Hugging Face transformers as settings of the model
// `decoder`. The names of their weights are in decoder.cpp, which both directions use.
#pragma once

#include <tenon/options.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/outside_training.hpp>

namespace tenon::decoder {

enum class Architecture : std::uint8_t { kLlama, kPhi3 };
inline constexpr const char* kLlamaName = "LlamaForCausalLM";
inline constexpr const char* kPhi3Name = "Phi3ForCausalLM";

class Importer final : public ModelImporter {
 public:
  static constexpr ComponentInfo kInfo{.id = "decoder",
                                       .summary = "Llama and Phi-3 of Hugging Face as model decoder"};
  explicit Importer(const Options&) {}
  std::vector<std::string> architectures() const override { return {kLlamaName, kPhi3Name}; }
  ModelDescription model(std::string_view architecture, const Value& settings) override;
  void* query(std::string_view) override { return nullptr; }
};

}  // namespace tenon::decoder
