// A data file as tokens, and where its documents begin: a text whose bytes are the tokens, a text that is
// encoded into a cache, or a file of tokens with or without an index beside it.
#pragma once

#include "token_cache.hpp"
#include "token_file.hpp"

#include <tenon/dataset.hpp>
#include <tenon/host.hpp>
#include <tenon/sdk/text_documents.hpp>
#include <tenon/tokenizer.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

struct CorpusSpec {
  std::string owner;  ///< component in messages: "data.text"
  std::string format;
  Tokenizer* tokenizer = nullptr;  ///< null: tokens of a text are its bytes
  DocumentRule rule;               ///< of texts; files of tokens have an index
  std::string cache;
};

class Corpus {
 public:
  /// Opens and checks the file; throws Error(kConfig), and Error(kRun) where another process encodes it and
  /// stands still.
  Corpus(const CorpusSpec& spec, const std::string& path, Host& host);

  /// As the configuration names it; messages and manifest do so.
  const std::string& path() const { return path_; }
  /// "bytes" for any text, encoded or not.
  std::string_view format() const { return format_; }
  bool is_text() const { return format_ == "bytes"; }
  /// Tokens of the tokenizer that wrote them; 0 = not known.
  std::int64_t vocabulary() const { return vocabulary_; }
  const TokenFile& tokens() const { return *tokens_; }
  /// First tokens, ascending from 0; empty where the file has no documents.
  std::span<const std::int64_t> documents() const { return documents_; }
  /// The file and its index with their checksums.
  const std::vector<DataSource>& sources() const { return sources_; }

 private:
  void open_text(const CorpusSpec& spec, Host& host);
  void open_tokens(const CorpusSpec& spec);
  void report(const DocumentCounts& counts, const DocumentRule& rule, Host& host) const;

  std::string path_;
  std::string_view format_;
  std::int64_t vocabulary_ = 0;
  std::optional<TokenFile> tokens_;
  std::vector<std::int64_t> documents_;
  std::vector<DataSource> sources_;
};

}  // namespace tenon::text
