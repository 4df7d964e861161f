#include "splitter.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <array>
#include <cstdint>

namespace tenon::bpe {
namespace {

constexpr std::size_t kLongestPattern = 4096;
// Steps of one match, and memory in KiB where the machine code's stack does not do.
constexpr std::uint32_t kMatchLimit = 50'000'000, kHeapLimit = 256 * 1024;
constexpr std::size_t kStackBegin = 64 * 1024, kStackMost = 16 * 1024 * 1024;

[[noreturn]] void refuse(const std::string& label, std::string_view pattern, std::size_t at,
                         const std::string& why) {
  fail_config(fmt::format("{}: pattern '{}', character {}: {}", label, pattern, at, why));
}

/// The pattern for PCRE2: \s and \S as the Unicode property, since PCRE2's own \s holds U+180E, too. Refuses
/// what the two libraries read differently.
std::string translated(std::string_view pattern, const std::string& label) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char letter = pattern[++i];
      if (letter == 's' || letter == 'S') {
        out += letter == 's' ? "\\p{WSpace}" : "\\P{WSpace}";
        continue;
      }
      if (std::string_view("wWbBhHRXKGAzZQE").find(letter) != std::string_view::npos)
        refuse(label, pattern, i - 1,
               fmt::format("\\{} has another meaning in other programs that read this file; write properties "
                           "such as \\p{{L}}",
                           letter));
      out += c;
      out += letter;
      if (i + 1 < pattern.size() && pattern[i + 1] == '{' &&
          std::string_view("pPx").find(letter) != std::string_view::npos)
        while (i + 1 < pattern.size() && out.back() != '}') out += pattern[++i];
      continue;
    }
    if (in_class) {
      if (c == '[' || (c == '&' && pattern.substr(i).starts_with("&&")))
        refuse(label, pattern, i, "classes inside of classes are not supported");
      if (c == ']') in_class = false;
    } else if (c == '[') {
      in_class = true;
      if (pattern.substr(i).starts_with("[]") || pattern.substr(i).starts_with("[^]"))
        refuse(label, pattern, i, "a class without members is not supported; write \\] for the bracket");
    } else if (c == '^' || c == '$') {
      refuse(label, pattern, i, "anchors have another meaning in other programs that read this file");
    } else if (c == '}' && i + 1 < pattern.size() && pattern[i + 1] == '+') {
      refuse(label, pattern, i, "'}+' has another meaning in other programs that read this file");
    } else if (c == '(' && i + 1 < pattern.size() && pattern[i + 1] == '*') {
      refuse(label, pattern, i, "verbs are not supported");
    }
    out += c;
  }
  return out;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i, unsigned low, unsigned high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return follows(1, 0x80, 0xBF) ? 2 : 0;
  if (first < 0xF0) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80, high = first == 0xED ? 0x9F : 0xBF;
    return follows(1, low, high) && follows(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first > 0xF4) return 0;
  const unsigned low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
  return follows(1, low, high) && follows(2, 0x80, 0xBF) && follows(3, 0x80, 0xBF) ? 4 : 0;
}

struct Splitter::Code {
  pcre2_code* code = nullptr;
  bool compiled = false;  ///< to machine code
  ~Code() { pcre2_code_free(code); }
};

struct Splitter::Scratch::State {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kStackBegin, kStackMost, nullptr);
  ~State() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

Splitter::Scratch::Scratch() : state_(std::make_unique<State>()) {
  if (state_->match == nullptr || state_->context == nullptr)
    fail_run("tokenizer bpe: there is no memory to match a pattern");
  pcre2_set_match_limit(state_->context, kMatchLimit);
  pcre2_set_heap_limit(state_->context, kHeapLimit);
  if (state_->stack != nullptr) pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
}

Splitter::Scratch::~Scratch() = default;

Splitter::Splitter(std::string_view pattern, const std::string& label) {
  if (pattern.empty()) return;
  if (pattern.size() > kLongestPattern)
    fail_config(fmt::format("{}: the pattern has {} bytes, expected at most {}", label, pattern.size(),
                            kLongestPattern));
  const std::string text = translated(pattern, label);
  code_ = std::make_unique<Code>();
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE, &error,
                              &place, context);
  pcre2_compile_context_free(context);
  if (code_->code == nullptr)
    fail_config(fmt::format("{}: pattern '{}' is no regular expression: {} (at byte {} of '{}')", label,
                            pattern, message_of(error), place, text));
  std::uint32_t empty = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty != 0)
    fail_config(fmt::format("{}: pattern '{}' matches the empty text; every match must hold a character",
                            label, pattern));
  code_->compiled = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

Splitter::~Splitter() = default;

bool Splitter::match(Scratch& scratch, std::string_view run, std::size_t from, std::size_t& begin,
                     std::size_t& end) const {
  const auto* text = reinterpret_cast<PCRE2_SPTR>(run.data());
  Scratch::State& state = *scratch.state_;
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->compiled)
    found = pcre2_jit_match(code_->code, text, run.size(), from, 0, state.match, state.context);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)
    found = pcre2_match(code_->code, text, run.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.match,
                        state.context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    fail_run(
        fmt::format("tokenizer bpe: the pattern cannot be matched at byte {} of a text of {} bytes: {}; "
                    "cut the text into documents, or use a pattern without nested repetitions",
                    from, run.size(), message_of(found)));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.match);
  begin = bounds[0];
  end = bounds[1];
  return true;
}

bool Splitter::Pass::next(std::string_view& piece) {
  if (at_ == text_.size()) return false;
  if (at_ == end_) {
    begin_ = end_;
    while (std::size_t length = utf8_length(text_.substr(end_))) end_ += length;
    if (begin_ == end_) {  // none is valid here
      while (end_ < text_.size() && utf8_length(text_.substr(end_)) == 0) ++end_;
      piece = text_.substr(begin_, end_ - begin_);
      at_ = end_;
      return true;
    }
  }
  std::size_t to = end_;
  if (match_end_ != 0) {
    to = match_end_;
    match_end_ = 0;
  } else if (splitter_.code_) {
    std::size_t begin = 0, end = 0;
    if (splitter_.match(scratch_, text_.substr(begin_, end_ - begin_), at_ - begin_, begin, end)) {
      to = begin_ + end;
      if (begin_ + begin > at_) {
        match_end_ = to;
        to = begin_ + begin;
      }
    }
  }
  piece = text_.substr(at_, to - at_);
  at_ = to;
  return true;
}

}  // namespace tenon::bpe
