// Uses of a model outside training. Through query: `tenon generate` works with any pair of a data set and a
// model that offer the text of tokens and a graph that ends in logits; `tenon export` asks a model how its
// parameters are called and laid out in other programs, and exports a model that does not answer under its
// own names. And the contract `importer/1`: `tenon import` asks every importer for the architecture of a
// folder.
#pragma once

#include <tenon/config.hpp>
#include <tenon/dataset.hpp>
#include <tenon/language_model.hpp>
#include <tenon/model.hpp>
#include <tenon/stored_model.hpp>
#include <tenon/tokenizer.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

/// Text of the tokens of a data set ("tenon.dataset.tokenized/1"). A data set whose files hold ids of an
/// unknown vocabulary offers none.
class TokenizedText {
 public:
  static constexpr const char* kId = "tenon.dataset.tokenized/1";
  virtual ~TokenizedText();
  /// Lives as long as the data set.
  virtual Tokenizer& tokenizer() = 0;
};

/// How a data set of conversations writes them as tokens ("tenon.dataset.conversations/1"). Beside
/// TokenizedText. Any thread, after open().
class ConversationText {
 public:
  static constexpr const char* kId = "tenon.dataset.conversations/1";
  virtual ~ConversationText();
  /// What a model goes on from to answer. `line`: a table as in the data set's files. Its messages up to
  /// where the last answer begins, or all of them and the begin of an answer where the last message is none.
  /// Throws Error(kConfig) that says what the line lacks.
  virtual std::vector<std::int32_t> prompt(const Value& line) const = 0;
  /// The ids, one after another, that follow every answer of the assistant and belong to it in training;
  /// empty where an answer has no end of its own. Valid as long as the data set.
  virtual std::span<const std::int32_t> answer_end() const = 0;
};

struct RowRange {
  std::int64_t first = 0, count = 0;
};

/// How parameters here are tensors there. Read from here to there by export, from there to here by import.
///
/// The tensors of `here`, joined along dimension 0 and multiplied by `factor`, are those of `there`, joined
/// along dimension 0 after each of them was transposed if `transposed`. With `blocks` the joined rows of
/// `here` stand in another order there. One tensor on both sides is a rename,
/// one on the right a concatenation, one on the left a split. Of all others of a side, extents but the first
/// are equal.
struct NameRule {
  std::vector<std::string> here;
  std::vector<std::string> there;
  double factor = 1;        ///< not 0
  bool transposed = false;  ///< matrices alone
  /// Rows that each tensor of `there` takes, where it has several; else empty.
  std::vector<std::int64_t> rows = {};
  /// Ranges of the joined rows of `here`, in the order in which they stand there: each row once. Empty: all
  /// as they are.
  std::vector<RowRange> blocks = {};
};

/// A text file beside the weights, such as config.json.
struct ExportedFile {
  std::string name;  ///< without folder
  std::string text;
};

struct NamePlan {
  std::vector<NameRule> rules;      ///< a parameter without a rule keeps name and value
  std::vector<ExportedFile> files;  ///< that export writes
  /// Tensors there that import leaves out, since they follow from others: "*" stands for any text.
  std::vector<std::string> derived;
};

/// Names and layout of a model's parameters in other programs ("tenon.model.names/2").
class ModelNames {
 public:
  static constexpr const char* kId = "tenon.model.names/2";
  virtual ~ModelNames();
  /// Pure in options and data. Throws Error(kConfig) that names option and layer where the other programs
  /// have no such model.
  virtual NamePlan name_plan(const DataInfo& data) = 0;
};

/// Contract `importer/1`: models of other programs by their config.json. A component of its own beside the
/// model, since a model is made from options, and these are what an importer finds. Without options.
class ModelImporter {
 public:
  using Interface = ModelImporter;
  static constexpr const char* kKind = "importer/1";
  virtual ~ModelImporter();
  /// As `architectures` of config.json names them: "LlamaForCausalLM".
  virtual std::vector<std::string> architectures() const = 0;
  /// The table [model], with a type that offers ModelNames and with `context` and `vocabulary` among its
  /// options, and what data need. `settings`: config.json, its nulls left out; `architecture`: one of
  /// architectures(). Throws Error(kConfig) with key, value and what is supported for settings that the model
  /// cannot represent. Settings that change no value, such as the program's version, are not read.
  virtual ModelDescription model(std::string_view architecture, const Value& settings) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
