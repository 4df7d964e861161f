#include "encoder.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>
#include <utility>

namespace tenon::bpe {
namespace {

constexpr std::size_t kShortPiece = 64;  // bytes up to which looking at all pairs is faster than a queue
constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

/// Ids of pieces that were met. An entry is replaced by the next piece that falls on it.
class PieceCache {
 public:
  static constexpr std::size_t kLongest = 24, kMostIds = 8;
  struct Entry {
    char bytes[kLongest];
    std::int32_t ids[kMostIds];
    std::uint8_t length, count;
  };

  PieceCache() : entries_(std::make_unique<Entry[]>(kEntries)) {}

  /// The place of a piece of at most kLongest bytes; `length` 0 where it was never used.
  Entry& entry(std::string_view piece) noexcept {
    std::uint64_t words[3] = {};
    std::memcpy(words, piece.data(), piece.size());
    std::uint64_t hash = piece.size();
    for (const std::uint64_t word : words) hash = (std::rotl(hash, 23) ^ word) * 0x9E3779B97F4A7C15ULL;
    return entries_[hash >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 15;
  static constexpr std::size_t kEntries = std::size_t{1} << kBits;
  std::unique_ptr<Entry[]> entries_;
};

}  // namespace

class Encoder::Workspace {
 public:
  Splitter::Scratch scratch;
  PieceCache cache;
  std::vector<std::int32_t> symbols;
  std::vector<std::int32_t> ranks, results;  // of a short piece, by its left symbol
  std::vector<std::int32_t> next, previous;  // of a long one
};

/// A workspace for one call.
class Encoder::Lease {
 public:
  explicit Lease(const Encoder& encoder) : encoder_(encoder) {
    {
      const std::lock_guard lock(encoder.mutex_);
      if (!encoder.idle_.empty()) {
        work_ = std::move(encoder.idle_.back());
        encoder.idle_.pop_back();
      }
    }
    if (!work_) work_ = std::make_unique<Workspace>();
  }
  ~Lease() {
    const std::lock_guard lock(encoder_.mutex_);
    try {
      encoder_.idle_.push_back(std::move(work_));
    } catch (const std::bad_alloc&) {
      // The next call makes another one.
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Workspace& operator*() { return *work_; }

 private:
  const Encoder& encoder_;
  std::unique_ptr<Workspace> work_;
};

Encoder::Encoder(Description description, const std::string& label)
    : description_(std::move(description)), splitter_(description_.pattern, label) {
  check_tokens(label);
  index_merges(label);
}

Encoder::~Encoder() = default;

void Encoder::check_tokens(const std::string& label) {
  std::unordered_map<std::string_view, std::int32_t> by_bytes;
  by_bytes.reserve(description_.tokens.size());
  for (std::size_t id = 0; id < description_.tokens.size(); ++id) {
    const std::string& bytes = description_.tokens[id];
    if (bytes.empty()) continue;
    const auto [other, is_new] = by_bytes.emplace(bytes, static_cast<std::int32_t>(id));
    if (!is_new)
      fail_config(
          fmt::format("{}: tokens {} and {} have equal bytes, '{}'", label, other->second, id, bytes));
  }
  for (const SpecialToken& token : description_.special) by_bytes.erase(token.text);
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto found = by_bytes.find(std::string_view(&text, 1));
    if (found == by_bytes.end())
      fail_config(fmt::format("{}: there is no token for byte {:#04x}, which a text may hold", label, byte));
    of_byte_[byte] = found->second;
  }
  if (description_.ignore_merges) whole_ = std::move(by_bytes);
}

void Encoder::index_merges(const std::string& label) {
  const std::size_t places = std::bit_ceil(std::max<std::size_t>(2, 2 * description_.merges.size()));
  shift_ = 64 - std::countr_zero(places);
  slots_.assign(places, {});
  const auto is_special = [&](std::int32_t id) {
    return std::ranges::binary_search(description_.special, id, {}, &SpecialToken::id);
  };
  for (std::size_t i = 0; i < description_.merges.size(); ++i) {
    const Merge& merge = description_.merges[i];
    for (const std::int32_t id : {merge.left, merge.right, merge.result}) {
      if (is_special(id))
        fail_config(
            fmt::format("{}: model.merges[{}] has to do with the special token '{}', which no text gives",
                        label, i, description_.tokens[static_cast<std::size_t>(id)]));
    }
    const std::uint64_t pair = pair_of(merge.left, merge.right);
    std::size_t place = place_of(pair);
    while (slots_[place].pair != kNoPair) {
      if (slots_[place].pair == pair)
        fail_config(fmt::format("{}: model.merges[{}] and [{}] are of the same two tokens", label,
                                slots_[place].rank, i));
      place = (place + 1) & (places - 1);
    }
    slots_[place] = {pair, static_cast<std::int32_t>(i), merge.result};
  }
}

const Encoder::Slot* Encoder::find(std::int32_t left, std::int32_t right) const noexcept {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t place = place_of(pair);
  while (slots_[place].pair != pair) {
    if (slots_[place].pair == kNoPair) return nullptr;
    place = (place + 1) & (slots_.size() - 1);
  }
  return &slots_[place];
}

void Encoder::merge_short(std::vector<std::int32_t>& symbols, Workspace& work) const {
  std::size_t count = symbols.size();
  work.ranks.resize(count);
  work.results.resize(count);
  const auto look = [&](std::size_t at) {
    const Slot* const slot = find(symbols[at], symbols[at + 1]);
    work.ranks[at] = slot == nullptr ? kNever : slot->rank;
    work.results[at] = slot == nullptr ? -1 : slot->result;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    const auto end = work.ranks.begin() + static_cast<std::ptrdiff_t>(count - 1);
    const auto least = std::min_element(work.ranks.begin(), end);
    if (*least == kNever) break;
    const auto at = static_cast<std::size_t>(least - work.ranks.begin());
    symbols[at] = work.results[at];
    for (std::size_t i = at + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      work.ranks[i] = work.ranks[i + 1];
      work.results[i] = work.results[i + 1];
    }
    --count;
    if (at + 1 < count) look(at);
    if (at > 0) look(at - 1);
  }
  symbols.resize(count);
}

/// The same with a queue of pairs, whose entries are checked when their turn comes: a pair that an earlier
/// merge took apart gives another result, or none.
void Encoder::merge_long(std::vector<std::int32_t>& symbols, Workspace& work) const {
  struct Candidate {
    std::int32_t rank, at, result;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  work.next.resize(symbols.size());
  work.previous.resize(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) {
    work.next[i] = i + 1;
    work.previous[i] = i - 1;
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto look = [&](std::int32_t at) {
    const std::int32_t right = work.next[at];
    if (right == count) return;
    if (const Slot* const slot = find(symbols[at], symbols[right]))
      queue.push({slot->rank, at, slot->result});
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) look(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    if (symbols[top.at] < 0 || work.next[top.at] == count) continue;
    const std::int32_t right = work.next[top.at];
    const Slot* const slot = find(symbols[top.at], symbols[right]);
    if (slot == nullptr || slot->rank != top.rank) continue;
    symbols[top.at] = top.result;
    symbols[right] = -1;
    work.next[top.at] = work.next[right];
    if (work.next[right] < count) work.previous[work.next[right]] = top.at;
    look(top.at);
    if (work.previous[top.at] >= 0) look(work.previous[top.at]);
  }
  std::erase(symbols, -1);
}

void Encoder::append_piece(std::string_view piece, Workspace& work, std::vector<std::int32_t>& ids) const {
  const bool short_piece = piece.size() <= PieceCache::kLongest;
  PieceCache::Entry* entry = nullptr;
  if (short_piece) {
    entry = &work.cache.entry(piece);
    if (entry->length == piece.size() && std::memcmp(entry->bytes, piece.data(), piece.size()) == 0) {
      ids.insert(ids.end(), entry->ids, entry->ids + entry->count);
      return;
    }
  }
  work.symbols.clear();
  const auto whole = description_.ignore_merges ? whole_.find(piece) : whole_.end();
  if (whole != whole_.end()) {
    work.symbols.push_back(whole->second);
  } else {
    for (const char byte : piece) work.symbols.push_back(of_byte_[static_cast<unsigned char>(byte)]);
    if (piece.size() <= kShortPiece)
      merge_short(work.symbols, work);
    else
      merge_long(work.symbols, work);
  }
  if (entry != nullptr && work.symbols.size() <= PieceCache::kMostIds) {
    std::memcpy(entry->bytes, piece.data(), piece.size());
    std::ranges::copy(work.symbols, entry->ids);
    entry->length = static_cast<std::uint8_t>(piece.size());
    entry->count = static_cast<std::uint8_t>(work.symbols.size());
  }
  ids.insert(ids.end(), work.symbols.begin(), work.symbols.end());
}

std::vector<std::int32_t> Encoder::encode(std::string_view text) const {
  if (text.size() > static_cast<std::size_t>(kNever))
    fail_run(fmt::format(
        "tokenizer bpe: a text has {} bytes, expected less than 2 GiB; cut it into documents", text.size()));
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  Lease work(*this);
  Splitter::Pass pass(splitter_, (*work).scratch, text);
  std::string_view piece;
  while (pass.next(piece)) append_piece(piece, *work, ids);
  return ids;
}

std::string_view Encoder::token_bytes(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= description_.tokens.size())
    fail_run(fmt::format("token {} is outside of the vocabulary: expected 0 to {}", id,
                         description_.tokens.size() - 1));
  return description_.tokens[static_cast<std::size_t>(id)];
}

std::string Encoder::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(4 * ids.size());
  for (const std::int32_t id : ids) text += token_bytes(id);
  return text;
}

std::string Encoder::digest() const {
  std::string text = "tenon bpe 1";
  const auto number = [&](std::int64_t value) {
    for (int i = 0; i < 8; ++i) text += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
  };
  const auto bytes = [&](std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    text += value;
  };
  bytes(description_.pattern);
  number(description_.ignore_merges ? 1 : 0);
  number(static_cast<std::int64_t>(description_.tokens.size()));
  for (const std::string& token : description_.tokens) bytes(token);
  number(static_cast<std::int64_t>(description_.special.size()));
  for (const SpecialToken& token : description_.special) number(token.id);
  number(static_cast<std::int64_t>(description_.merges.size()));
  for (const Merge& merge : description_.merges) {
    number(merge.left);
    number(merge.right);
  }
  return sha256_of(std::as_bytes(std::span(text)));
}

}  // namespace tenon::bpe
