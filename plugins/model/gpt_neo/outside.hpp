// GPT-Neo for other programs: the names of its weights and settings in transformers' GPTNeoForCausalLM
// ("tenon.model.names/1"), and the graph that ends in logits ("tenon.model.language/1"). Both are derived
// from the graph that the model builds, so they always match what is trained.
#pragma once

#include <tenon/sdk/language.hpp>
#include <tenon/sdk/model_export.hpp>

namespace tenon::gpt_neo {

class Outside final : public ModelExport, public LanguageModel {
 public:
  Outside(Model& model, const Options& options) : model_(model), options_(options) {}

  ExportPlan export_plan(const DataInfo& data) override;
  LanguageGraph language_graph(const DataInfo& data) override;
  void* query(std::string_view interface_id);

 private:
  std::string config_json(const GraphSpec& graph) const;

  Model& model_;
  const Options& options_;  // outlives the model
};

}  // namespace tenon::gpt_neo
