// Ability of models that predict the next token ("tenon.model.language/1"): the graph from tokens to logits,
// which generation, teachers and `tenon generate` run on the trained parameters.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/model.hpp>

#include <string>

TENON_ABI_BEGIN

/// A graph of the same parameters as the trained one. Its data field "tokens" is i32 [time], and position t
/// of `logits` [batch, time, vocabulary] depends on tokens 0 .. t alone.
struct LanguageGraph {
  GraphSpec graph;
  std::string logits;  ///< name of the value
};

/// A model that predicts the next token ("tenon.model.language/1").
class LanguageModel {
 public:
  static constexpr const char* kId = "tenon.model.language/1";
  virtual ~LanguageModel();
  /// Pure in options and data.
  virtual LanguageGraph language_graph(const DataInfo& data) = 0;
};

TENON_ABI_END
