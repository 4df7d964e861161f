// Checks of contract tokenizer/1: any bytes come back, ids are of the vocabulary and never special, and equal
// options are one tokenizer.
#include "subject.hpp"

#include <tenon/random.hpp>
#include <tenon/tokenizer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace tenon::conformance {
namespace {

constexpr std::uint64_t kStrings = 2000;

/// Printable bytes as they are, others as \xNN.
std::string shown_bytes(std::string_view text) {
  std::string out;
  for (const char byte : text) {
    const bool plain = byte >= ' ' && byte <= '~' && byte != '\\';
    out += plain ? std::string(1, byte) : fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return out.size() > 200 ? out.substr(0, 200) + "..." : out;
}

/// Texts of all kinds: every byte alone, broken and whole UTF-8, long runs, and the texts of special tokens.
std::vector<std::string> texts_to_try(const Tokenizer& tokenizer, std::uint64_t seed) {
  std::vector<std::string> texts{"",
                                 "The quick brown fox's 12345 lines,\r\n\tdon't   end.\n\n",
                                 "na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80",
                                 "\xC3",
                                 "\xE2\x82",
                                 "\xC0\x80",
                                 "\xED\xA0\x80",
                                 "\xF4\x90\x80\x80",
                                 "\xEF\xBB\xBFtext",
                                 std::string(1000, 'a'),
                                 std::string(1000, ' ') + "end",
                                 std::string(3, '\0')};
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const SpecialToken& token : tokenizer.special()) texts.push_back("a " + token.text + " b");
  const RandomKey key = random_key(seed, "texts");
  for (std::uint64_t i = 0; i < kStrings; ++i) {
    std::string text;
    const auto length = static_cast<std::uint64_t>(random_uniform(key, i, 0) * 30);
    const double letters = random_uniform(key, i, 1);
    for (std::uint64_t at = 0; at < length; ++at) {
      const double draw = random_uniform(key, i, 2 + at);
      text += static_cast<char>(draw < letters ? ' ' + static_cast<int>(95 * draw / letters)
                                               : static_cast<int>(256 * (draw - letters) / (1 - letters)));
    }
    texts.push_back(text);
  }
  return texts;
}

void describes_its_vocabulary(Subject& subject) {
  const testing::Made<Tokenizer> made = subject.make<Tokenizer>();
  const std::int64_t vocabulary = made->vocabulary();
  if (vocabulary < 1) fail(fmt::format("the vocabulary has {} tokens, expected 1 or more", vocabulary));
  std::int32_t last = -1;
  for (const SpecialToken& token : made->special()) {
    if (token.id <= last || token.id >= vocabulary)
      fail(fmt::format("special token '{}' has the id {} after {}; ids ascend, and are below {}", token.text,
                       token.id, last, vocabulary));
    if (made->token_bytes(token.id) != token.text)
      fail(fmt::format("special token '{}': token_bytes({}) is '{}'", token.text, token.id,
                       shown_bytes(made->token_bytes(token.id))));
    last = token.id;
  }
  const auto special = made->special();
  const std::int32_t end = made->end_of_text();
  if (end != -1 && std::ranges::find(special, end, &SpecialToken::id) == special.end())
    fail(fmt::format("end_of_text() is {}, which is no special token; -1 says that there is none", end));
}

void gives_bytes_back(Subject& subject) {
  const testing::Made<Tokenizer> made = subject.make<Tokenizer>();
  for (const std::string& text : texts_to_try(*made, subject.seed())) {
    const std::vector<std::int32_t> ids = made->encode(text);
    const std::string back = made->decode(ids);
    if (back != text)
      fail(fmt::format("decode(encode(text)) is other bytes: '{}' became '{}'", shown_bytes(text),
                       shown_bytes(back)));
    std::string joined;
    for (const std::int32_t id : ids) joined += made->token_bytes(id);
    if (joined != back)
      fail(fmt::format("decode() gives '{}', and token_bytes() of the ids '{}'", shown_bytes(back),
                       shown_bytes(joined)));
  }
}

void keeps_its_range(Subject& subject) {
  const testing::Made<Tokenizer> made = subject.make<Tokenizer>();
  const auto special = made->special();
  for (const std::string& text : texts_to_try(*made, subject.seed())) {
    for (const std::int32_t id : made->encode(text)) {
      if (id < 0 || id >= made->vocabulary())
        fail(fmt::format("text '{}' has the id {}, outside of 0 to {}", shown_bytes(text), id,
                         made->vocabulary() - 1));
      if (std::ranges::find(special, id, &SpecialToken::id) != special.end())
        fail(fmt::format("text '{}' has the id {} of a special token; their texts are text here",
                         shown_bytes(text), id));
    }
  }
}

void refuses_other_ids(Subject& subject) {
  const testing::Made<Tokenizer> made = subject.make<Tokenizer>();
  const auto beyond = static_cast<std::int32_t>(made->vocabulary());
  for (const std::int32_t id : {-1, beyond, std::numeric_limits<std::int32_t>::max()}) {
    const auto attempt = [&](const char* what, auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::kRun) return;
        fail(fmt::format("{} of the id {}: expected fail_run, found another kind of error: {}", what, id,
                         error.what()));
      }
      fail(fmt::format("{} takes the id {}, outside of 0 to {}; throw by fail_run", what, id, beyond - 1));
    };
    attempt("token_bytes()", [&] { made->token_bytes(id); });
    attempt("decode()", [&] { made->decode(std::span(&id, 1)); });
  }
}

void tokenizer_is_pure(Subject& subject) {
  const testing::Made<Tokenizer> made = subject.make<Tokenizer>(), again = subject.make<Tokenizer>();
  const std::string digest(made->digest());
  if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != std::string::npos)
    fail(fmt::format("digest() is '{}', expected the 64 hexadecimal digits of a SHA-256", digest));
  if (again->digest() != digest)
    fail(fmt::format("two objects of equal options have the digests {} and {}", digest, again->digest()));
  const std::vector<std::string> texts = texts_to_try(*made, subject.seed());
  std::vector<std::vector<std::int32_t>> expected;
  for (const std::string& text : texts) expected.push_back(made->encode(text));
  for (std::size_t i = texts.size(); i-- > 0;) {
    for (const Tokenizer* tokenizer : {&*made, &*again})
      if (tokenizer->encode(texts[i]) != expected[i])
        fail(fmt::format(
            "text '{}' has other ids when it is encoded again, in reverse order or by another object",
            shown_bytes(texts[i])));
  }
  std::vector<std::string> wrong(4);
  std::vector<std::thread> threads;
  for (std::string& found : wrong)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < texts.size() && found.empty(); ++i)
        if (made->encode(texts[i]) != expected[i]) found = "text '" + shown_bytes(texts[i]) + "'";
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& found : wrong)
    if (!found.empty()) fail(fmt::format("{} has other ids with four threads that encode at once", found));
}

void learns_equal_bytes(Subject& subject) {
  const testing::Made<Tokenizer> made = subject.make<Tokenizer>(), again = subject.make<Tokenizer>();
  auto* const first = static_cast<TokenizerTraining*>(made->query(TokenizerTraining::kId));
  if (first == nullptr) not_applicable("it is not learned from text");
  auto* const second = static_cast<TokenizerTraining*>(again->query(TokenizerTraining::kId));
  std::string text;
  const RandomKey key = random_key(subject.seed(), "words");
  for (std::uint64_t i = 0; i < 4000; ++i) {  // of 200 words with letters of their own
    const auto word = static_cast<std::uint64_t>(200 * random_uniform(key, i, 0));
    const std::uint64_t letters = 3 + word % 5;
    for (std::uint64_t at = 0; at < letters; ++at)
      text += static_cast<char>('a' + static_cast<int>(26 * random_uniform(key, 10'000 + word, at)));
    text += ' ';
  }
  const std::string_view parts[] = {text};
  const TokenizerTarget target{300, {"<|endoftext|>"}};
  const std::string file = first->train(parts, target);
  if (file.empty()) fail("train() gives an empty file");
  if (first->train(parts, target) != file || second->train(parts, target) != file)
    fail("train() gives other bytes for equal texts and targets, by a second call or another object");
}

constexpr const char* kTokenizerKind = Tokenizer::kKind;
constexpr Check kTokenizerChecks[] = {
    {"tokenizer.describes_its_vocabulary", kTokenizerKind,
     "special tokens are listed by id, with the bytes that they give, and one of them ends a text or none",
     describes_its_vocabulary},
    {"tokenizer.gives_bytes_back", kTokenizerKind,
     "decode(encode(text)) is text, UTF-8 or not, token by token", gives_bytes_back, 60},
    {"tokenizer.keeps_its_range", kTokenizerKind, "ids of texts are of the vocabulary, and never special",
     keeps_its_range, 60},
    {"tokenizer.refuses_other_ids", kTokenizerKind, "ids outside of the vocabulary are errors",
     refuses_other_ids},
    {"tokenizer.is_pure", kTokenizerKind, "equal options are one tokenizer, in any order and on any thread",
     tokenizer_is_pure, 60},
    {"tokenizer.learns_equal_bytes", kTokenizerKind, "equal texts and targets give equal files",
     learns_equal_bytes, 60},
};

}  // namespace

std::span<const Check> tokenizer_checks() {
  return kTokenizerChecks;
}

}  // namespace tenon::conformance
