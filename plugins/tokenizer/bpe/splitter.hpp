// Pre-tokenisation: a text as pieces, each of which merges stay inside of. The pieces of a text are all of
// its bytes in their order. PCRE2 matches the pattern; patterns whose meaning differs between it and
// Oniguruma, which Hugging Face's tokenizers use, are refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tenon::bpe {

/// Patterns by name: that of GPT-2 and that of Llama 3.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Any thread. Each pass over a text needs a Scratch of its own.
class Splitter {
 public:
  /// What a pass works with; one pass at a time.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class Splitter;
    struct State;
    std::unique_ptr<State> state_;
  };

  /// pattern: as in tokenizer.json; "": a run of valid text is one piece. Throws Error(kConfig), with `label`
  /// in front, for a pattern that is no regular expression, that matches nothing at all, or that is refused.
  Splitter(std::string_view pattern, const std::string& label);
  ~Splitter();
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  /// One pass over a text, which outlives it. Every maximal run of bytes that are no UTF-8 is a piece. Each
  /// run of valid text between them is matched as a text of its own: its pieces are the matches and what lies
  /// between two matches.
  class Pass {
   public:
    Pass(const Splitter& splitter, Scratch& scratch, std::string_view text)
        : splitter_(splitter), scratch_(scratch), text_(text) {}
    /// False at the end. Throws Error(kRun) where the pattern takes more steps than the limit.
    bool next(std::string_view& piece);

   private:
    const Splitter& splitter_;
    Scratch& scratch_;
    std::string_view text_;
    std::size_t at_ = 0;               ///< the first byte that is in no piece yet
    std::size_t begin_ = 0, end_ = 0;  ///< the run of valid text
    std::size_t match_end_ = 0;        ///< end of a match that begins after a gap; 0: none is kept
  };

 private:
  struct Code;
  /// The next match in `run` from `from`: its begin and end; false if there is none.
  bool match(Scratch& scratch, std::string_view run, std::size_t from, std::size_t& begin,
             std::size_t& end) const;

  std::unique_ptr<Code> code_;  ///< null: no pattern
};

/// Bytes of the valid UTF-8 character at the front of `text`, 0 if there is none. Overlong forms, surrogates
/// and characters above U+10FFFF are not valid.
std::size_t utf8_length(std::string_view text) noexcept;

}  // namespace tenon::bpe
