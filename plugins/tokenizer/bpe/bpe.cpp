#include "bpe.hpp"

#include "trainer.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::bpe {
namespace {

std::string pattern_named(std::string_view name) {
  if (name == "gpt2") return std::string(kGpt2Pattern);
  if (name == "llama3") return std::string(kLlama3Pattern);
  return std::string(name);
}

/// -1 where there are no special tokens.
std::int32_t usual_end_of_text(std::span<const SpecialToken> special) {
  for (const char* text : {"<|endoftext|>", "<|end_of_text|>", "</s>"}) {
    const auto found = std::ranges::find(special, text, &SpecialToken::text);
    if (found != special.end()) return found->id;
  }
  return special.empty() ? -1 : special.front().id;
}

Description bytes_alone(std::string pattern) {
  Description made;
  for (int byte = 0; byte < 256; ++byte) made.tokens.emplace_back(1, static_cast<char>(byte));
  made.pattern = std::move(pattern);
  return made;
}

}  // namespace

Bpe::Bpe(const Options& options) {
  if (options.has("file")) {
    const std::string path(options.text("file"));
    const std::string label = fmt::format("tokenizer file '{}'", path);
    if (options.has("pattern"))
      fail_config("tokenizer bpe: option 'pattern' is for tokenizers without a file; the file has a pattern");
    try {
      file_text_ = read_text(*make_posix_files(), path, kLargestFile);
    } catch (const FileError& error) {
      fail_config(fmt::format("{}: {}", label, error.what()));
    }
    encoder_ = std::make_unique<Encoder>(read_tokenizer_json(file_text_, label), label);
  } else {
    const std::string pattern(options.has("pattern") ? options.text("pattern") : "gpt2");
    encoder_ =
        std::make_unique<Encoder>(bytes_alone(pattern_named(pattern)), "tokenizer bpe: option 'pattern'");
  }
  end_of_text_ = usual_end_of_text(special());
  if (options.has("end_of_text")) {
    const std::string_view text = options.text("end_of_text");
    const auto found = std::ranges::find(special(), text, &SpecialToken::text);
    if (found == special().end())
      fail_config(fmt::format(
          "tokenizer bpe: option 'end_of_text' names '{}', and there is no such special token{}", text,
          special().empty() ? "" : fmt::format(" (the first one is '{}')", special()[0].text)));
    end_of_text_ = found->id;
  }
  digest_ = encoder_->digest();
}

void* Bpe::query(std::string_view interface_id) {
  if (interface_id == TokenizerFile::kId) return static_cast<TokenizerFile*>(this);
  if (interface_id == TokenizerTraining::kId) return static_cast<TokenizerTraining*>(this);
  return nullptr;
}

std::string Bpe::text() const {
  return file_text_.empty() ? write_tokenizer_json(encoder_->description()) : file_text_;
}

std::string Bpe::train(std::span<const std::string_view> texts, const TokenizerTarget& target) const {
  const Description made = learn(texts, target, encoder_->description().pattern);
  if (!made.special.empty()) {
    const std::int32_t end = usual_end_of_text(made.special);
    if (end != made.special.front().id)
      fail_config(fmt::format(
          "tokenizer bpe: special token '{}' would end a text, since readers know it as that; name "
          "it first, before '{}'",
          made.tokens[static_cast<std::size_t>(end)], made.special.front().text));
  }
  return write_tokenizer_json(made);
}

}  // namespace tenon::bpe

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tokenizer_bpe",
                               .version = "0.1.0",
                               .summary = "byte-level BPE, read from tokenizer.json or learned"},
             tenon::bpe::Bpe)
