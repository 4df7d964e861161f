// Text to ids by a Description: pieces, then the merge that comes first in the list, leftmost first, until
// none applies. Pieces that were met before are looked up.
#pragma once

#include "splitter.hpp"
#include "tokenizer_json.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tenon::bpe {

/// Any thread.
class Encoder {
 public:
  /// Throws Error(kConfig), with `label` in front: a byte without a token, two tokens of equal bytes, a merge
  /// that is listed twice or that has to do with a special token, and what Splitter refuses.
  Encoder(Description description, const std::string& label);
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  const Description& description() const { return description_; }
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Throws Error(kRun) for an id outside of the vocabulary.
  std::string_view token_bytes(std::int32_t id) const;
  std::string decode(std::span<const std::int32_t> ids) const;
  /// SHA-256 of pattern, tokens and merges.
  std::string digest() const;

 private:
  class Workspace;
  class Lease;

  /// Merges by their two tokens: open addressing, at most half full.
  struct Slot {
    std::uint64_t pair = kNoPair;
    std::int32_t rank = 0, result = 0;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t place_of(std::uint64_t pair) const noexcept { return (pair * 0x9E3779B97F4A7C15ULL) >> shift_; }
  /// Null where the two do not merge.
  const Slot* find(std::int32_t left, std::int32_t right) const noexcept;

  void check_tokens(const std::string& label);
  void index_merges(const std::string& label);
  void append_piece(std::string_view piece, Workspace& work, std::vector<std::int32_t>& ids) const;
  void merge_short(std::vector<std::int32_t>& symbols, Workspace& work) const;
  void merge_long(std::vector<std::int32_t>& symbols, Workspace& work) const;

  Description description_;
  Splitter splitter_;
  std::int32_t of_byte_[256];
  std::vector<Slot> slots_;
  int shift_ = 63;
  std::unordered_map<std::string_view, std::int32_t> whole_;  ///< tokens by bytes, if merges may be ignored

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;  ///< for the next calls
};

}  // namespace tenon::bpe
