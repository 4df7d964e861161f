// Bytes of a text are tokens as they lie, so a text without a tokenizer is only encoded where its documents
// are inside JSON.
#include "corpus.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>

#include <fmt/format.h>

#include <utility>

namespace tenon::text {

Corpus::Corpus(const CorpusSpec& spec, const std::string& path, Host& host) : path_(path) {
  tokens_.emplace(path, spec.format);
  format_ = tokens_->format();
  is_text() ? open_text(spec, host) : open_tokens(spec);
}

void Corpus::report(const DocumentCounts& counts, const DocumentRule& rule, Host& host) const {
  if (host.rank() != 0) return;
  if (counts.bad > 0)
    host.log(LogLevel::kWarning,
             fmt::format("data file '{}': {} of {} lines are no JSON objects with a text under '{}', first "
                         "{}. They are left out",
                         path_, counts.bad, counts.lines, rule.key, counts.first_bad));
  if (counts.empty > 0)
    host.log(LogLevel::kInfo, fmt::format("data file '{}': {} of {} documents are empty and left out", path_,
                                          counts.empty, counts.empty + counts.documents));
}

void Corpus::open_text(const CorpusSpec& spec, Host& host) {
  const std::string_view content = tokens_->bytes();
  const bool bytes = spec.tokenizer == nullptr || spec.tokenizer->digest() == ByteTokenizer::kDigest;
  if (!bytes || spec.rule.form == DocumentForm::kJsonLines) {
    const ByteTokenizer by_byte;
    const Tokenizer& tokenizer = bytes ? static_cast<const Tokenizer&>(by_byte) : *spec.tokenizer;
    const TokenCache cache({spec.owner, path_, spec.cache, spec.rule}, content, tokenizer, host);
    report(cache.counts(), spec.rule, host);
    if (!bytes) vocabulary_ = tokenizer.vocabulary();
    if (spec.rule.form != DocumentForm::kWhole) documents_ = cache.index().first;
    sources_ = {{path_, cache.sha256()}};
    tokens_.emplace(cache.path(), "llmc");
    return;
  }
  sources_ = {{path_, sha256_of_file(*make_posix_files(), path_)}};
  if (spec.rule.form == DocumentForm::kWhole) return;
  const DocumentCounts counts = for_each_document(
      content, spec.rule, fmt::format("data file '{}'", path_), [&](const TextDocument& document) {
        // Separators before the first document belong to it.
        documents_.push_back(documents_.empty() ? 0 : document.text.data() - content.data());
      });
  report(counts, spec.rule, host);
}

void Corpus::open_tokens(const CorpusSpec& spec) {
  if (spec.rule.form != DocumentForm::kWhole)
    fail_config(
        fmt::format("{}: separator_line, separator_byte and jsonl_key are for texts, and '{}' is a file of "
                    "tokens; leave them out: its documents are those of an index beside it",
                    spec.owner, path_));
  const std::unique_ptr<FileSystem> files = make_posix_files();
  sources_ = {{path_, sha256_of_file(*files, path_)}};
  if (spec.tokenizer != nullptr) vocabulary_ = spec.tokenizer->vocabulary();
  const std::string index_path = document_index_path(path_);
  if (!files->exists(index_path)) return;
  DocumentIndex index = read_document_index(*files, index_path);
  if (index.tokens != tokens_->size())
    fail_config(
        fmt::format("data file '{}' has {} tokens, and its index '{}' counts {}; write the tokens again",
                    path_, tokens_->size(), index_path, index.tokens));
  if (spec.tokenizer != nullptr && index.tokenizer != spec.tokenizer->digest())
    fail_config(
        fmt::format("data file '{}' was written by the tokenizer {}, as its index '{}' says, and "
                    "data.tokenizer is {}; name the tokenizer that wrote it, or encode the text again",
                    path_, index.tokenizer, index_path, spec.tokenizer->digest()));
  vocabulary_ = index.vocabulary;
  documents_ = std::move(index.first);
  sources_.push_back({index_path, sha256_of_file(*files, index_path)});
}

}  // namespace tenon::text
