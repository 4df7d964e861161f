// Component `importer.gpt_neo`: GPT-Neo of Hugging Face transformers as settings of the model `gpt_neo`. The
// names of its weights are in gpt_neo.cpp, which both directions use.
#pragma once

#include <tenon/options.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/outside_training.hpp>

namespace tenon::gpt_neo {

class Importer final : public ModelImporter {
 public:
  static constexpr ComponentInfo kInfo{.id = "gpt_neo",
                                       .summary = "GPT-Neo of Hugging Face as model gpt_neo"};
  explicit Importer(const Options&) {}
  std::vector<std::string> architectures() const override { return {"GPTNeoForCausalLM"}; }
  ModelDescription model(std::string_view architecture, const Value& settings) override;
  void* query(std::string_view) override { return nullptr; }
};

}  // namespace tenon::gpt_neo
