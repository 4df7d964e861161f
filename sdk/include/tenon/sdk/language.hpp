// Language models outside training: text of a data set's tokens, and a graph that ends in logits. Both are
// obtained through query of a data set and of a model; `tenon generate` works with any pair that offers them.
#pragma once

#include <tenon/model.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// Text as token ids and back ("tenon.dataset.text/1"). A data set whose files hold ids of an unknown
/// vocabulary offers none.
class TextCodec {
 public:
  static constexpr const char* kId = "tenon.dataset.text/1";
  virtual ~TextCodec();
  /// Throws Error(kConfig) for text that cannot be encoded.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// Bytes of the tokens one after another; a single token need not be valid UTF-8.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
};

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
