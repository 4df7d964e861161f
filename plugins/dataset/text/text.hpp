// Data set `text` (contract dataset/1): windows of tokens for language models. Fields tokens and targets,
// both i32 [context], targets shifted by one. It does no tokenizing: plain text is bytes.
#pragma once

#include "source.hpp"
#include "token_bytes.hpp"

#include <tenon/dataset.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>
#include <tenon/sdk/outside_training.hpp>

#include <optional>
#include <string>

namespace tenon::text {

/// Base of the data sets of this folder: fields tokens and targets, both i32 [context], the checks of a
/// request, and padding. Contract dataset/1.
class WindowDataset : public Dataset, public TokenizedText {
 public:
  std::int64_t batch() const final { return batch_; }
  const DataInfo& info() const final { return info_; }
  void read(const BatchRequest& request, std::span<const TensorView> fields) final;
  /// Returns the text interface for plain text only; token files do not define their ids.
  void* query(std::string_view interface_id) override {
    return interface_id == TokenizedText::kId && plain_bytes() ? static_cast<TokenizedText*>(this) : nullptr;
  }

  Tokenizer& tokenizer() final { return bytes_; }

 protected:
  /// `owner` names the component in messages: "data.text".
  WindowDataset(std::string owner, std::int64_t context, std::int64_t batch);
  /// The derived class sets sample counts and vocabulary.
  DataInfo& mutable_info() { return info_; }
  std::int64_t context() const { return context_; }
  /// Opens the tokenizer's file, if the options name one: before the sources, whose vocabulary it gives.
  void open_tokenizer(const Options& options);
  const TokenBytes* token_bytes() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  /// Sets the bytes per target: 1 for plain text, counted where the tokenizer is known. Once all of the rest
  /// of the info is set.
  void count_bytes();

 private:
  /// Fills one window; called concurrently, allocates nothing.
  virtual void copy(Split split, std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const = 0;
  /// Returns whether a token is a byte; false before open().
  virtual bool plain_bytes() const = 0;

  std::string owner_;
  std::int64_t context_, batch_;
  std::optional<TokenBytes> tokenizer_;
  DataInfo info_;
  ByteTokenizer bytes_;
};

class Text final : public WindowDataset {
 public:
  static constexpr const char* kTokenizerDoc =
      "llm.c's file of the tokenizer that wrote the tokens: evaluations then report loss per byte";
  static constexpr const char* kFormats[] = {"auto", "bytes", "nanogpt", "llmc", nullptr};
  static constexpr auto kOrders = option::choice<Order>(
      {{"random", Order::kRandom}, {"shuffled", Order::kShuffled}, {"sequential", Order::kSequential}});
  static constexpr OptionSpec kOptions[] = {
      option::path("path", "\"data/text/tinyshakespeare.txt\"").doc_text("file of text or tokens"),
      option::text("format", "\"auto\"")
          .one_of(kFormats)
          .doc_text(
              "bytes; nanogpt: headerless uint16; llmc: header and uint16 or uint32; auto: .bin by its first "
              "bytes, others bytes"),
      option::integer("context", "128").between(1, 1 << 20).in_unit("tokens").doc_text("length of a sample"),
      option::integer("batch", "16")
          .between(1, 1 << 20)
          .in_unit("samples")
          .doc_text("samples per micro-batch"),
      option::real("val_fraction", "0.1")
          .between(0, 0.9)
          .doc_text("share of the tokens, at the end of the file, that is held out for validation; unused "
                    "with val_path"),
      option::path("val_path", nullptr)
          .doc_text("file to validate on, of the same format, in place of a held-out tail"),
      option::text("order", "\"random\"")
          .one_of(kOrders)
          .doc_text(
              "random: windows anywhere; shuffled: every window once per epoch; sequential: in file order"),
      option::integer("vocabulary", "0")
          .between(0, 2147483647)
          .doc_text("number of token values; 0 = the tokenizer's, else by format: 256 for bytes, 50257 for "
                    "uint16 (GPT-2), 128256 for uint32 (Llama 3)"),
      option::path("tokenizer", nullptr).doc_text(kTokenizerDoc),
  };
  static constexpr ComponentInfo kInfo{
      .id = "text", .summary = "bytes or tokens of a text file, in windows", .options = kOptions};

  explicit Text(const Options& options);
  void open(std::uint64_t seed_order) override;

 private:
  void copy(Split split, std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const override;
  bool plain_bytes() const override { return source_ && source_->format() == "bytes"; }

  SourceSpec spec_;
  std::optional<Source> source_;
};

}  // namespace tenon::text
