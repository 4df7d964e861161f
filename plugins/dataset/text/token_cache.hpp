// A plain text as a file of tokens with an index of its documents, encoded once and kept (data.cache). It is
// encoded again when the text, the tokenizer or the rule of its documents changes.
#pragma once

#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/sdk/packed_files.hpp>
#include <tenon/sdk/text_documents.hpp>
#include <tenon/sdk/token_files.hpp>
#include <tenon/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::text {

struct TokenCacheSpec {
  std::string owner;   ///< component in messages: "data.text"
  std::string source;  ///< path of the text
  std::string folder;  ///< empty: "tenon-cache" beside the source
  DocumentRule rule;
};

class TokenCache {
 public:
  /// Opens the tokens of the text `content` of the source and encodes them if absent: one process or thread
  /// encodes and the others wait, as open_packed() says. Throws Error(kConfig), Error(kRun).
  TokenCache(const TokenCacheSpec& spec, std::string_view content, const Tokenizer& tokenizer, Host& host);

  /// A file of tokens in llm.c's format.
  const std::string& path() const { return path_; }
  const DocumentIndex& index() const { return index_; }
  const DocumentCounts& counts() const { return counts_; }
  const std::string& sha256() const { return sha256_; }  ///< of the source when it was encoded

 private:
  bool open(const FileIdentity& source);
  void encode(std::string_view content, const FileIdentity& source, Host& host);

  TokenCacheSpec spec_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<FileSystem> files_;
  std::string path_;
  DocumentIndex index_;
  DocumentCounts counts_;
  std::string sha256_;
};

}  // namespace tenon::text
