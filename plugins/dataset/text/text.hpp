// Data set `text` (contract dataset/1): windows of tokens for language models. Fields tokens and targets,
// both i32 [context], targets shifted by one. It does no tokenizing: plain text is bytes.
#pragma once

#include "source.hpp"
#include "windows.hpp"

#include <tenon/plugin.hpp>

#include <optional>
#include <string>

namespace tenon::text {

class Text final : public WindowDataset {
 public:
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
              "random: windows anywhere; shuffled: every window once per epoch; sequential: as they lie"),
      option::integer("vocabulary", "0")
          .between(0, 2147483647)
          .doc_text("number of token values; 0 = by format: 256 for bytes, 50257 for uint16 (GPT-2), 128256 "
                    "for uint32 "
                    "(Llama 3)"),
  };
  static constexpr ComponentInfo kInfo{.id = "text",
                                       .summary = "bytes or tokens of a text file, in windows",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};

  explicit Text(const Options& options);
  void open(std::uint64_t seed_order) override;

 private:
  void copy(Split split, std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const override;
  bool plain_bytes() const override { return source_ && source_->format() == "bytes"; }

  SourceSpec spec_;
  std::optional<Source> source_;
};

}  // namespace tenon::text
