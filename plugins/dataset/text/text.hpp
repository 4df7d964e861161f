// Data set `text` (contract dataset/1): tokens of a text or a token file for language models. Fields tokens
// and targets, both i32 [context], targets shifted by one; with documents also documents and positions. A
// tokenizer makes the tokens; without one they are bytes.
#pragma once

#include "source.hpp"
#include "token_bytes.hpp"

#include <tenon/dataset.hpp>
#include <tenon/host.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>
#include <tenon/sdk/outside_training.hpp>

#include <optional>
#include <string>

namespace tenon::text {

/// Options that the data sets of this folder share.
inline constexpr auto kPacks = option::choice<Pack>(
    {{"stream", Pack::kStream}, {"documents", Pack::kDocuments}, {"whole", Pack::kWhole}});
inline constexpr auto kLongDocuments = option::choice<bool>({{"refuse", false}, {"split", true}});
inline constexpr const char* kFormats[] = {"auto", "bytes", "nanogpt", "llmc", nullptr};
inline constexpr OptionSpec kContextOption =
    option::integer("context", "128").between(1, 1 << 20).in_unit("tokens").doc_text("length of a sample");
inline constexpr OptionSpec kTrainFractionOption =
    option::real("train_fraction", "1")
        .between(1e-6, 1)
        .doc_text("share of the tokens that are not held out, from the first on, that is trained on");
inline constexpr OptionSpec kBatchOption =
    option::integer("batch", "16").between(1, 1 << 20).in_unit("samples").doc_text("samples per micro-batch");
inline constexpr OptionSpec kTokenizerOption =
    option::component("tokenizer", Tokenizer::kKind)
        .doc_text(
            "makes the tokens of plain text, which is encoded once into data.cache; for files of "
            "tokens the one that wrote them; without it tokens of text are bytes");
inline constexpr OptionSpec kTokenBytesOption =
    option::path("token_bytes", nullptr)
        .doc_text(
            "for files of tokens without data.tokenizer: llm.c's file of the tokenizer that wrote "
            "them, so that evaluations report loss per byte");
inline constexpr OptionSpec kPackOption =
    option::text("pack", "\"stream\"")
        .one_of(kPacks)
        .doc_text(
            "stream: windows across documents; documents: the same, with fields documents and "
            "positions and no target in another document; whole: rows of whole documents by best fit, "
            "padded");
inline constexpr OptionSpec kLongOption =
    option::text("long_documents", "\"refuse\"")
        .one_of(kLongDocuments)
        .doc_text("for pack = \"whole\": what happens to documents that are longer than a row");
inline constexpr OptionSpec kLineOption = option::text("separator_line", nullptr)
                                              .doc_text(
                                                  "a line of plain text that stands between two documents, "
                                                  "e.g. \"<|endoftext|>\"; \"\": an empty line");
inline constexpr OptionSpec kByteOption =
    option::integer("separator_byte", nullptr)
        .between(0, 255)
        .doc_text("a byte of plain text that stands between two documents");
inline constexpr OptionSpec kKeyOption =
    option::text("jsonl_key", nullptr)
        .doc_text("plain text is JSON Lines, and each line has a document under this key");
inline constexpr OptionSpec kBadShareOption =
    option::real("max_bad_share", "0.001")
        .between(0, 1)
        .doc_text(
            "share of broken lines of JSON Lines above which a file is refused; they are left out and "
            "logged");
inline constexpr OptionSpec kCacheOption =
    option::text("cache", "\"\"")
        .doc_text("folder for encoded text, 2 or 4 bytes per token; empty = tenon-cache beside each file");

/// Base of the data sets of this folder: fields, the checks of a request, padding, and the tokenizer.
/// Contract dataset/1.
class WindowDataset : public Dataset, public TokenizedText {
 public:
  std::int64_t batch() const final { return batch_; }
  const DataInfo& info() const final { return info_; }
  void read(const BatchRequest& request, std::span<const TensorView> fields) final;
  /// Returns the text interface where a tokenizer is named, and for plain text; other token files do not
  /// define their ids.
  void* query(std::string_view interface_id) override {
    const bool known = spec_.corpus.tokenizer != nullptr || is_text();
    return interface_id == TokenizedText::kId && known ? static_cast<TokenizedText*>(this) : nullptr;
  }

  Tokenizer& tokenizer() final {
    return spec_.corpus.tokenizer != nullptr ? *spec_.corpus.tokenizer : bytes_;
  }

 protected:
  /// `owner` names the component in messages: "data.text". Reads the options above and opens the file of
  /// `token_bytes`.
  WindowDataset(std::string owner, const Options& options, Host& host);
  Host& host() const { return host_; }
  /// The derived class sets sample counts and vocabulary.
  DataInfo& mutable_info() { return info_; }
  /// Settings of every source, but its paths and what the derived class sets.
  SourceSpec& spec() { return spec_; }
  /// Adds to the sources of the manifest, and sets the bytes per target: 1 for bytes, counted where the
  /// tokenizer is known. Once all of the rest of the info is set.
  void finish_info();

 private:
  /// Fills one sample; called concurrently, allocates nothing.
  virtual void copy(Split split, std::int64_t sample, const SampleFields& out) const = 0;
  /// Returns whether the files are plain text; false before open().
  virtual bool is_text() const = 0;
  void read_rule(const Options& options);
  std::vector<std::int64_t> token_lengths() const;

  std::string owner_;
  Host& host_;
  std::int64_t batch_;
  SourceSpec spec_;
  std::optional<TokenBytes> token_bytes_;
  DataInfo info_;
  ByteTokenizer bytes_;
};

class Text final : public WindowDataset {
 public:
  static constexpr auto kOrders = option::choice<Order>(
      {{"random", Order::kRandom}, {"shuffled", Order::kShuffled}, {"sequential", Order::kSequential}});
  static constexpr OptionSpec kOptions[] = {
      option::path("path", "\"data/text/tinyshakespeare.txt\"").doc_text("file of text or tokens"),
      option::text("format", "\"auto\"")
          .one_of(kFormats)
          .doc_text(
              "bytes; nanogpt: headerless uint16; llmc: header and uint16 or uint32; auto: .bin by its first "
              "bytes, others bytes"),
      kContextOption,
      kBatchOption,
      option::real("val_fraction", "0.1")
          .between(0, 0.9)
          .doc_text("share of the tokens, at the end of the file, that is held out for validation; unused "
                    "with val_path"),
      kTrainFractionOption,
      option::path("val_path", nullptr)
          .doc_text("file to validate on, of the same format, in place of a held-out tail"),
      option::text("order", "\"random\"")
          .one_of(kOrders)
          .doc_text(
              "random: windows anywhere; shuffled: every window or row once per epoch; sequential: in file "
              "order"),
      option::integer("vocabulary", "0")
          .between(0, 2147483647)
          .doc_text("number of token values; 0 = the tokenizer's, else by format: 256 for bytes, 50257 for "
                    "uint16 (GPT-2), 128256 for uint32 (Llama 3)"),
      kTokenizerOption,
      kTokenBytesOption,
      kPackOption,
      kLongOption,
      kLineOption,
      kByteOption,
      kKeyOption,
      kBadShareOption,
      kCacheOption,
  };
  static constexpr ComponentInfo kInfo{
      .id = "text",
      .summary = "bytes or tokens of a text file, in windows or whole documents",
      .options = kOptions};

  Text(const Options& options, Host& host);
  void open(std::uint64_t seed_order) override;

 private:
  void copy(Split split, std::int64_t sample, const SampleFields& out) const override;
  bool is_text() const override { return source_ && source_->is_text(); }

  std::optional<Source> source_;
};

}  // namespace tenon::text
