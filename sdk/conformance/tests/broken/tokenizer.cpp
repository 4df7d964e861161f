// Tokenizers that are wrong in one way each.
#include <tenon/plugin.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>

#include <algorithm>
#include <array>
#include <atomic>

namespace {

using namespace tenon;

class Base : public ByteTokenizer {
 public:
  explicit Base(const Options&) {}
};

class EndsWithALetter final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "ends_with_a_letter", .summary = "a letter ends a text"};
  using Base::Base;
  std::int32_t end_of_text() const override { return 'z'; }
};

class NeedsUtf8 final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "needs_utf8",
                                       .summary = "bytes above ASCII become question marks"};
  using Base::Base;
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids = Base::encode(text);
    for (std::int32_t& id : ids)
      if (id > 127) id = '?';
    return ids;
  }
};

class Shouts final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "shouts", .summary = "token_bytes() is in capitals"};
  using Base::Base;
  std::string_view token_bytes(std::int32_t id) const override {
    return id == 'e' ? std::string_view("E") : Base::token_bytes(id);
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) text += Base::token_bytes(id);
    return text;
  }
};

class GivesSpecialTokens final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "gives_special_tokens",
                                       .summary = "the text of a special token is one"};
  using Base::Base;
  std::int64_t vocabulary() const override { return 257; }
  std::span<const SpecialToken> special() const override { return special_; }
  std::string_view token_bytes(std::int32_t id) const override {
    return id == 256 ? std::string_view(special_[0].text) : Base::token_bytes(id);
  }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i).starts_with("<s>")) {
        ids.push_back(256);
        i += 2;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i]));
      }
    }
    return ids;
  }

 private:
  std::array<SpecialToken, 1> special_{SpecialToken{"<s>", 256}};
};

class TakesAnyId final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "takes_any_id",
                                       .summary = "ids outside of the vocabulary are nothing"};
  using Base::Base;
  std::string_view token_bytes(std::int32_t id) const override {
    return id < 0 || id > 255 ? std::string_view() : Base::token_bytes(id);
  }
};

class CountsObjects final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_objects", .summary = "each object has another digest"};
  explicit CountsObjects(const Options& options) : Base(options), digest_(Base::digest()) {
    static std::atomic<int> objects{0};
    digest_[0] = static_cast<char>('0' + ++objects % 10);
  }
  std::string_view digest() const override { return digest_; }

 private:
  std::string digest_;
};

class CountsFiles final : public Base, public TokenizerTraining {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_files", .summary = "each file is another one"};
  using Base::Base;
  void* query(std::string_view id) override {
    return id == TokenizerTraining::kId ? static_cast<TokenizerTraining*>(this) : nullptr;
  }
  std::string train(std::span<const std::string_view>, const TokenizerTarget&) const override {
    return std::to_string(++files_);
  }

 private:
  mutable std::atomic<int> files_{0};
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "broken.tokenizer",
                               .version = "1.0.0",
                               .summary = "wrong in one way each"},
             EndsWithALetter, NeedsUtf8, Shouts, GivesSpecialTokens, TakesAnyId, CountsObjects, CountsFiles)
