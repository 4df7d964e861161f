// Data set `conversations` (contract dataset/1): lines of JSON with messages, written by a template, of which
// the answers alone are learned. Fields tokens and targets, both i32 [context]; with packing also documents
// and positions, both i32 [context]. It holds all tokens in memory.
#pragma once

#include "chat_template.hpp"

#include <tenon/host.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>
#include <tenon/sdk/indexed_dataset.hpp>
#include <tenon/sdk/outside_training.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::text {

class Conversations final : public IndexedDataset, public TokenizedText, public ConversationText {
 public:
  enum class Pack : std::uint8_t { kWhole, kDocuments, kNone };
  static constexpr auto kPacks =
      option::choice<Pack>({{"whole", Pack::kWhole}, {"documents", Pack::kDocuments}, {"none", Pack::kNone}});
  static constexpr OptionSpec kOptions[] = {
      option::path("path", nullptr)
          .mandatory()
          .doc_text("file with a conversation a line: {\"messages\": [{\"role\": ..., \"content\": ...}, "
                    "...]}"),
      option::path("val_path", nullptr).doc_text("file of conversations to validate on"),
      option::real("val_fraction", "0.1")
          .between(0, 0.9)
          .doc_text("share of the conversations that is held out, the same for every seed; unused with "
                    "val_path"),
      option::component("tokenizer", Tokenizer::kKind).doc_text("absent: the bytes of the text"),
      ChatTemplate::roles_option(),
      ChatTemplate::special_option(),
      ChatTemplate::answer_option(),
      option::integer("context", "128").between(1, 1 << 20).in_unit("tokens").doc_text("length of a row"),
      batch_option("16"),
      order_option(),
      option::text("pack", "\"whole\"")
          .one_of(kPacks)
          .doc_text("whole: several whole conversations in a row, by best fit; documents: one after another, "
                    "cut where a row ends; none: one in a row"),
      option::real("max_bad_share", "0")
          .between(0, 1)
          .doc_text("share of a file's lines that cannot be used above which it is refused; they are left "
                    "out and logged"),
  };
  static constexpr ComponentInfo kInfo{.id = "conversations",
                                       .summary = "conversations whose answers are learned, packed into rows",
                                       .options = kOptions};

  Conversations(const Options& options, Host& host);
  void* query(std::string_view interface_id) override;

  Tokenizer& tokenizer() override { return *tokenizer_; }
  std::vector<std::int32_t> prompt(const Value& line) const override { return template_.prompt(line); }
  std::span<const std::int32_t> answer_end() const override { return template_.answer_end(); }

 private:
  /// Tokens first ... first + places, all of which but the last are inputs and all but the first predicted.
  struct Piece {
    std::int64_t first = 0, places = 0;
  };
  /// Conversations of a split, and the pieces of each row.
  struct Part {
    std::vector<Piece> conversations;
    std::vector<Piece> pieces;               ///< row after row
    std::vector<std::int64_t> begins = {0};  ///< of each row in `pieces`, and its size

    std::int64_t rows() const { return static_cast<std::int64_t>(begins.size()) - 1; }
  };

  IndexedContent load() override;
  void opened(DataInfo& info) override;
  void copy(bool from_val_files, std::int64_t index, std::int64_t row,
            std::span<const TensorView> fields) const override;
  void read_file(const std::string& path, Part& part);
  /// Moves a share of the conversations of `train_` to `val_`.
  void hold_out();
  void fill_rows(Part& part, std::string_view name) const;
  double bytes_per_target() const;

  Host& host_;
  ByteTokenizer bytes_;
  Tokenizer* tokenizer_;  ///< the option's, or bytes_
  ChatTemplate template_;
  std::string path_, val_path_;
  double val_fraction_, max_bad_share_;
  std::int64_t context_;
  Pack pack_;
  ChatTokens tokens_;  ///< of both splits
  Part train_, val_;
};

}  // namespace tenon::text
