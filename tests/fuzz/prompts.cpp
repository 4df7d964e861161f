// Target: files of prompts, and texts between special tokens. The first byte of the input chooses the form.
// Places of prompts ascend, a text is that of its ids, and special tokens lose no byte of a text.
#include "input.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>
#include <tenon/sdk/prompts.hpp>

namespace {

/// Bytes, and "<a>" and "<a" after them.
class Marked final : public tenon::ByteTokenizer {
 public:
  std::int64_t vocabulary() const override { return kBytes + 2; }
  std::span<const tenon::SpecialToken> special() const override { return special_; }
  std::string_view token_bytes(std::int32_t id) const override {
    return id < kBytes ? ByteTokenizer::token_bytes(id) : std::string_view(special_[id - kBytes].text);
  }

 private:
  std::vector<tenon::SpecialToken> special_{{"<a>", kBytes}, {"<a", kBytes + 1}};
};

class MarkedLines final : public tenon::PromptEncoder {
 public:
  std::vector<std::int32_t> encode(const std::string& text, const std::string&) const override {
    return tenon::encode_with_special(words_, text, words_.special());
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return words_.decode(ids); }
  bool has_conversations() const override { return true; }
  std::vector<std::int32_t> conversation(const tenon::Value&, const std::string&) const override {
    return {1, 2};
  }

 private:
  Marked words_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  if (size < 1) return 0;
  static const MarkedLines lines;
  const auto form = data[0] % 2 == 0 ? PromptForm::kJsonLines : PromptForm::kEither;
  const std::string text(fuzz::text_of(data + 1, size - 1));
  fuzz::require(lines.decode(lines.encode(text, "")) == text, "bytes that special tokens lose");
  try {
    std::int64_t before = 0;
    for (const PromptLine& prompt : read_prompts(text, "input", form, lines)) {
      fuzz::require(prompt.line > before, "lines that do not ascend");
      before = prompt.line;
      fuzz::require(lines.decode(prompt.ids) == prompt.text, "a text that is not that of its tokens");
      fuzz::require(form == PromptForm::kEither || prompt.sample.has_value(), "a prompt without its line");
    }
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
