// Tokenizer `bpe`: byte-level BPE. It reads and writes tokenizer.json of Hugging Face, and learns from text.
// Text that is no UTF-8 keeps its bytes, and texts of special tokens are text.
#pragma once

#include "encoder.hpp"

#include <tenon/plugin.hpp>
#include <tenon/tokenizer.hpp>

#include <memory>
#include <string>

namespace tenon::bpe {

class Bpe final : public Tokenizer, public TokenizerFile, public TokenizerTraining {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::path("file", nullptr)
          .doc_text(
              "tokenizer.json of Hugging Face's layout; absent: the 256 bytes and no merges, from which "
              "training starts"),
      option::text("pattern", nullptr)
          .doc_text("without a file: gpt2, llama3, or a regular expression whose matches are the pieces that "
                    "merges stay inside of; gpt2 if absent"),
      option::text("end_of_text", nullptr)
          .doc_text("text of the special token that ends a text; absent: <|endoftext|>, <|end_of_text|> or "
                    "</s>, else the special token with the smallest id"),
  };
  static constexpr ComponentInfo kInfo{.id = "bpe",
                                       .summary = "byte-level BPE of a tokenizer.json, or learned from text",
                                       .options = kOptions};

  explicit Bpe(const Options& options);
  std::int64_t vocabulary() const override {
    return static_cast<std::int64_t>(encoder_->description().tokens.size());
  }
  std::int32_t end_of_text() const override { return end_of_text_; }
  std::span<const SpecialToken> special() const override { return encoder_->description().special; }
  std::string_view token_bytes(std::int32_t id) const override { return encoder_->token_bytes(id); }
  std::string_view digest() const override { return digest_; }
  std::vector<std::int32_t> encode(std::string_view text) const override { return encoder_->encode(text); }
  std::string decode(std::span<const std::int32_t> ids) const override { return encoder_->decode(ids); }
  void* query(std::string_view interface_id) override;

  std::string_view name() const override { return "tokenizer.json"; }
  std::string text() const override;
  std::string train(std::span<const std::string_view> texts, const TokenizerTarget& target) const override;

 private:
  std::unique_ptr<Encoder> encoder_;
  std::string file_text_;  ///< as it was read: it also holds what other programs alone use
  std::int32_t end_of_text_ = -1;
  std::string digest_;
};

}  // namespace tenon::bpe
