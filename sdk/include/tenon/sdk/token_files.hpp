// Files of tokens as llm.c writes them, and beside each the index of its documents, FILE.documents, which
// also names the tokenizer. Writes both, reads the index; the data sets `text` and `mixture` read the tokens.
//
//   FILE            256 int32 {magic, version, tokens, 0, ...}, then uint16 or uint32 tokens
//   FILE.documents  "tenondoc", uint32 version 1, uint32 0, digest of the tokenizer (64 characters), int64
//                   vocabulary, int64 tokens, int64 documents, for each document the int64 number of its
//                   first token, then the uint32 CRC-32C of everything before it
//
// All integers are little-endian.
#pragma once

#include <tenon/files.hpp>
#include <tenon/sdk/text_documents.hpp>
#include <tenon/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

TENON_ABI_BEGIN

/// Documents of a file of tokens.
struct DocumentIndex {
  std::string tokenizer;            ///< its digest
  std::int64_t vocabulary = 0;      ///< of the tokenizer
  std::int64_t tokens = 0;          ///< of the file
  std::vector<std::int64_t> first;  ///< token of each document: 0, then ascending
};

/// Where the index of a file of tokens is.
std::string document_index_path(const std::string& token_file);
/// Throws Error(kConfig) with path, expected and found.
DocumentIndex read_document_index(FileSystem& files, const std::string& path);
/// `label` begins every message.
DocumentIndex parse_document_index(std::span<const std::byte> bytes, const std::string& label);

/// Writes a file of tokens and its index. Both appear whole when finish() returns, and not at all without it;
/// a process that dies leaves files that end in ".tmp". One thread at a time.
class TokenFileWriter {
 public:
  /// uint16 for vocabularies of up to 65,536 tokens, else uint32. The folder of `path` exists. Throws
  /// FileError.
  TokenFileWriter(FileSystem& files, std::string path, const Tokenizer& tokenizer);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  /// Adds to the open document. Throws Error(kRun) for ids outside of the vocabulary, Error(kConfig) where
  /// the tokens become more than llm.c's header can count, 2^31 - 1.
  void append(std::span<const std::int32_t> ids);
  /// Encodes a document and ends it. Where no token ends a text the separator does, and is encoded with it.
  /// `tokenizer` is that of the file.
  void append_document(const TextDocument& document, const Tokenizer& tokenizer);
  /// Ends the open document with the token that ends a text, where the tokenizer has one; the next token
  /// begins another. A document without tokens leaves no trace.
  void end_document();
  /// Ends the open document without a token. Throws Error(kConfig) where there is no token, FileError.
  void finish();

  std::int64_t tokens() const { return index_.tokens; }
  std::int64_t documents() const { return static_cast<std::int64_t>(index_.first.size()); }

 private:
  void write(std::int32_t id);
  void flush();
  void write_whole() const;
  void remove_temporaries() noexcept;

  FileSystem& files_;
  std::string path_;
  std::int32_t end_of_text_;
  DocumentIndex index_;
  bool open_ = false, finished_ = false;
  std::size_t width_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<WritableFile> body_;
};

TENON_ABI_END
