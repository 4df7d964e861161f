// Shared by the names of all architectures: config.json as it grows, options of layers as text, and the
// refusal of a model that an architecture does not have. Of these, hybrid_names.cpp has Nemotron-H and
// Mamba-2.
#pragma once

#include "importer.hpp"
#include "pattern_layer.hpp"

#include <tenon/sdk/outside_training.hpp>

#include <span>
#include <string>
#include <string_view>

namespace tenon::decoder {

/// The model that a plan of names is made for. All outlive the plan's making.
struct NamedModel {
  Architecture architecture = Architecture::kLlama;
  const Options& options;
  std::span<const PatternLayer> layers;
  std::int64_t vocabulary = 0;  ///< rows
  std::int64_t context = 0;     ///< tokens of the longest sample

  const char* name() const;
  /// Throws Error(kConfig): "LlamaForCausalLM has no such model: ...".
  [[noreturn]] void refuse(const std::string& what) const;
  /// Refuses another value of a layer's option than `wanted`, as value_text gives it.
  void require(const PatternLayer& layer, std::string_view option, std::string_view wanted) const;
};

/// Value of an option of a layer, for comparison and messages.
std::string value_text(const PatternLayer& layer, std::string_view name);

/// config.json, member by member.
class ConfigText {
 public:
  ConfigText(const char* architecture, const char* model_type);
  void text(std::string_view key, std::string_view value);
  void truth(std::string_view key, bool value);
  /// As 1.0, which readers that check types require.
  void real(std::string_view key, double value);
  void integer(std::string_view key, std::int64_t value);
  void json(std::string_view key, std::string_view value);
  static std::string real_json(double value);
  std::string finish() &&;

 private:
  std::string text_;
};

/// Adds a rule for one or several tensors of a common beginning: `from` + each of `parts` is `to` there.
void add_rule(NamePlan& plan, const std::string& from, std::initializer_list<const char*> parts,
              const std::string& to);

/// The plan of Nemotron-H and Mamba-2. Throws Error(kConfig) where they have no such model.
NamePlan hybrid_name_plan(const NamedModel& model);

}  // namespace tenon::decoder
