#include "trainer.hpp"

#include "splitter.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tenon::bpe {
namespace {

constexpr std::int64_t kBytes = 256;

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void check_target(const TokenizerTarget& target) {
  const auto fail_target = [](const std::string& what) { fail_config("tokenizer bpe: " + what); };
  const auto special = static_cast<std::int64_t>(target.special.size());
  if (target.vocabulary < kBytes + special || target.vocabulary > kMostTokens)
    fail_target(fmt::format("a vocabulary of {} tokens, expected {} (the bytes and {} special tokens) to {}",
                            target.vocabulary, kBytes + special, special, kMostTokens));
  std::set<std::string> texts;
  for (const std::string& text : target.special) {
    if (text.size() < 2 || !is_utf8(text))
      fail_target(fmt::format("special token '{}': expected UTF-8 of two bytes at least", text));
    if (!texts.insert(text).second) fail_target(fmt::format("special token '{}' is named twice", text));
  }
}

/// Pieces with their counts, as symbols that merges shorten, and where each pair of symbols occurs.
class Learner {
 public:
  Learner(std::span<const std::string_view> texts, const std::string& pattern) {
    for (int byte = 0; byte < kBytes; ++byte) tokens_.emplace_back(1, static_cast<char>(byte));
    count_pieces(texts, pattern);
    for (std::size_t word = 0; word < words_.size(); ++word) {
      const Word& at = words_[word];
      for (std::size_t i = 0; i + 1 < at.length; ++i)
        add(symbols_[at.begin + i], symbols_[at.begin + i + 1], at.count, word);
    }
    for (std::size_t pair = 0; pair < pairs_.size(); ++pair) offer(pair);
    fresh_.clear();
  }

  /// Learns one token. Returns false if no pair that may become one occurs twice.
  bool merge_next(const std::unordered_set<std::string>& forbidden) {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), less());
      const Candidate top = heap_.back();
      heap_.pop_back();
      Pair& pair = pairs_[top.pair];
      if (pair.count != top.count) {  // it has become rarer; a rise was offered again
        if (pair.count < top.count) offer(top.pair);
        continue;
      }
      std::string bytes = tokens_[at(pair.left)] + tokens_[at(pair.right)];
      if (forbidden.count(bytes) > 0) continue;
      // Other tokens may give a known one, too: then it is one merge more and no new token.
      const auto [found, is_new] = known_.emplace(bytes, static_cast<std::int32_t>(tokens_.size()));
      const std::int32_t result = found->second;
      if (is_new) tokens_.push_back(std::move(bytes));
      merges_.push_back({pair.left, pair.right, result});
      merge(top.pair, result);
      if (is_new) return true;
    }
    return false;
  }

  std::vector<std::string> take_tokens() { return std::move(tokens_); }
  std::vector<Merge> take_merges() { return std::move(merges_); }
  std::size_t size() const { return tokens_.size(); }

 private:
  struct Word {
    std::size_t begin;
    std::uint32_t length;
    std::int64_t count;
  };
  struct Pair {
    std::int32_t left, right;
    std::int64_t count = 0;
    std::vector<std::uint32_t> words = {};  // some may no longer hold it
  };
  struct Candidate {
    std::int64_t count;
    std::uint32_t pair;
  };
  static std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

  /// The order of the heap: the pair that comes first is the greatest.
  struct Less {
    const Learner& learner;
    bool operator()(const Candidate& a, const Candidate& b) const {
      if (a.count != b.count) return a.count < b.count;
      const Pair &x = learner.pairs_[a.pair], &y = learner.pairs_[b.pair];
      const auto bytes = [&](std::int32_t id) -> const std::string& { return learner.tokens_[at(id)]; };
      if (const int order = bytes(x.left).compare(bytes(y.left)); order != 0) return order > 0;
      return bytes(x.right).compare(bytes(y.right)) > 0;
    }
  };
  Less less() const { return {*this}; }
  void offer(std::size_t pair) {
    if (pairs_[pair].count < 2) return;
    heap_.push_back({pairs_[pair].count, static_cast<std::uint32_t>(pair)});
    std::push_heap(heap_.begin(), heap_.end(), less());
  }

  void count_pieces(std::span<const std::string_view> texts, const std::string& pattern) {
    const Splitter splitter(pattern, "tokenizer bpe");
    Splitter::Scratch scratch;
    std::unordered_map<std::string_view, std::uint32_t> known;
    for (const std::string_view text : texts) {
      Splitter::Pass pass(splitter, scratch, text);
      std::string_view piece;
      while (pass.next(piece)) {
        if (piece.size() < 2) continue;
        const auto [found, is_new] = known.emplace(piece, static_cast<std::uint32_t>(words_.size()));
        if (!is_new) {
          ++words_[found->second].count;
          continue;
        }
        words_.push_back({symbols_.size(), static_cast<std::uint32_t>(piece.size()), 1});
        for (const char byte : piece) symbols_.push_back(static_cast<unsigned char>(byte));
      }
    }
  }

  Pair& pair_of(std::int32_t left, std::int32_t right) {
    const std::uint64_t key =
        std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    const auto [found, is_new] = places_.emplace(key, static_cast<std::uint32_t>(pairs_.size()));
    if (is_new) pairs_.push_back({left, right});
    last_ = found->second;
    return pairs_[last_];
  }
  void add(std::int32_t left, std::int32_t right, std::int64_t count, std::size_t word) {
    Pair& pair = pair_of(left, right);
    pair.count += count;
    if (pair.words.empty() || pair.words.back() != word)
      pair.words.push_back(static_cast<std::uint32_t>(word));
    fresh_.push_back(last_);
  }
  void remove(std::int32_t left, std::int32_t right, std::int64_t count) {
    pair_of(left, right).count -= count;
  }

  void merge(std::size_t merged, std::int32_t result) {
    const std::int32_t left = pairs_[merged].left, right = pairs_[merged].right;
    const std::vector<std::uint32_t> words = std::move(pairs_[merged].words);
    pairs_[merged].words.clear();
    for (const std::uint32_t index : words) {
      Word& word = words_[index];
      std::int32_t* const symbols = symbols_.data() + word.begin;
      std::uint32_t out = 0;
      for (std::uint32_t i = 0; i < word.length; ++i) {
        if (symbols[i] != left || i + 1 == word.length || symbols[i + 1] != right) {
          symbols[out++] = symbols[i];
          continue;
        }
        pairs_[merged].count -= word.count;
        if (out > 0) {
          remove(symbols[out - 1], left, word.count);
          add(symbols[out - 1], result, word.count, index);
        }
        if (i + 2 < word.length) {
          remove(right, symbols[i + 2], word.count);
          add(result, symbols[i + 2], word.count, index);
        }
        symbols[out++] = result;
        ++i;
      }
      word.length = out;
    }
    std::sort(fresh_.begin(), fresh_.end());
    fresh_.erase(std::unique(fresh_.begin(), fresh_.end()), fresh_.end());
    for (const std::uint32_t pair : fresh_) offer(pair);
    fresh_.clear();
  }

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> known_;  // learned tokens by bytes
  std::vector<Merge> merges_;
  std::vector<std::int32_t> symbols_;
  std::vector<Word> words_;
  std::vector<Pair> pairs_;
  std::unordered_map<std::uint64_t, std::uint32_t> places_;  // of pairs
  std::uint32_t last_ = 0;                                   // pair that was looked up
  std::vector<std::uint32_t> fresh_;                         // pairs whose count rose
  std::vector<Candidate> heap_;
};

}  // namespace

Description learn(std::span<const std::string_view> texts, const TokenizerTarget& target,
                  const std::string& pattern) {
  check_target(target);
  const auto wanted = static_cast<std::size_t>(target.vocabulary) - target.special.size();
  Learner learner(texts, pattern);
  const std::unordered_set<std::string> forbidden(target.special.begin(), target.special.end());
  while (learner.size() < wanted) {
    if (!learner.merge_next(forbidden))
      fail_run(
          fmt::format("tokenizer bpe: the texts have pairs that occur twice for a vocabulary of {} tokens, "
                      "expected {}; give more text, or ask for a smaller vocabulary",
                      learner.size() + target.special.size(), target.vocabulary));
  }
  Description made;
  made.tokens = learner.take_tokens();
  made.merges = learner.take_merges();
  made.pattern = pattern;
  for (const std::string& text : target.special) {
    made.special.push_back({text, static_cast<std::int32_t>(made.tokens.size())});
    made.tokens.push_back(text);
  }
  return made;
}

}  // namespace tenon::bpe
