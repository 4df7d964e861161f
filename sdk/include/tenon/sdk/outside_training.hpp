// Uses of a model outside training, each obtained through query: `tenon generate` works with any pair of a
// data set and a model that offer the text of tokens and a graph that ends in logits; `tenon export` asks a
// model for the names of its weights in other programs, and exports a model that does not answer under its
// own names.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/model.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

/// A weight that is exported in another form than it is kept.
struct ExportedWeight {
  std::string parameter;  ///< its name here
  std::string name;       ///< its name there
  double factor = 1;      ///< multiplies every element
};

/// A text file to write beside the weights, such as config.json.
struct ExportedFile {
  std::string name;  ///< without folder
  std::string text;
};

struct ExportPlan {
  std::vector<ExportedWeight> weights;  ///< weights not listed keep name and value
  std::vector<ExportedFile> files;
};

/// Names of a model's weights in other programs ("tenon.model.names/1").
class ModelExport {
 public:
  static constexpr const char* kId = "tenon.model.names/1";
  virtual ~ModelExport();
  /// Pure in options and data. Throws Error(kConfig) for options that the other programs cannot represent.
  virtual ExportPlan export_plan(const DataInfo& data) = 0;
};

TENON_ABI_END
