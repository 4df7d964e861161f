#include "witness/witness_file.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

namespace tenon::train {
namespace {

constexpr std::string_view kHeader = "tenon witness 1";
constexpr std::array<std::string_view, 6> kPhases{"input", "output", "gradient", "weight", "state", "round"};
constexpr std::size_t kDigits = 32;
constexpr std::size_t kShownOfLine = 80;

bool stays(char c) {
  return static_cast<unsigned char>(c) > 0x20 && c != 0x7f && c != '%';
}

std::string written(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (stays(c)) {
      text += c;
    } else {
      text += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// Nothing where written() gives no such text.
std::optional<std::string> read_name(std::string_view text) {
  std::string name;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (!stays(text[i])) return std::nullopt;
      name += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || stays(static_cast<char>(high * 16 + low))) return std::nullopt;
    name += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return name.empty() ? std::nullopt : std::optional(name);
}

std::optional<std::int64_t> read_count(std::string_view text) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  if (text != std::to_string(value)) return std::nullopt;  // "007", "-0"
  return value;
}

std::optional<WitnessDigest> read_digest(std::string_view text) {
  if (text.size() != kDigits) return std::nullopt;
  WitnessDigest digest;
  for (std::size_t i = 0; i < kDigits; ++i) {
    const int value = hex_digit(text[i]);
    if (value < 0) return std::nullopt;
    std::uint64_t& half = i < kDigits / 2 ? digest.high : digest.low;
    half = half << 4 | static_cast<std::uint64_t>(value);
  }
  return digest;
}

std::string digest_of(std::string_view text) {
  return xxh3_128_of(std::as_bytes(std::span(text.data(), text.size())));
}

/// The words of a line, one blank between two of them.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// Reads slot by slot, so that what comes before a damaged one can be kept.
class WitnessReader {
 public:
  WitnessReader(std::string_view text, std::string label) : text_(text), label_(std::move(label)) {}

  void read_header() {
    if (next_line() != kHeader) fail(fmt::format("expected '{}'", kHeader));
    whole_ = at_;
  }
  /// The next complete slot; nothing at the end.
  std::optional<WitnessSlot> next() {
    if (at_ == text_.size()) return std::nullopt;
    const std::size_t begin = at_;
    std::vector<std::string_view> words = words_of(next_line());
    const auto slot = words.size() == 2 && words[0] == "slot" ? read_count(words[1]) : std::nullopt;
    if (!slot) fail("expected 'slot' and its number");
    if (*slot <= last_) fail(fmt::format("slot {} follows slot {}; slots must ascend", *slot, last_));
    WitnessSlot found{*slot, {}};
    while (true) {
      const std::size_t here = at_;
      words = words_of(next_line());
      if (words[0] == "end") {
        finish(words, found, text_.substr(begin, here - begin));
        last_ = *slot;
        whole_ = at_;
        kept_names_ = names.size();
        return found;
      }
      if (words[0] == "name") {
        add_name(words);
      } else {
        found.entries.push_back(entry(words));
      }
    }
  }
  std::size_t whole() const { return whole_; }  ///< bytes up to the end of the newest complete slot
  /// Names that slots before it use.
  std::vector<WitnessName> kept_names() const { return {names.begin(), names.begin() + kept_names_}; }

  std::vector<WitnessName> names;

 private:
  [[noreturn]] void fail(const std::string& what) const {
    std::string shown;
    for (const char c : line_.substr(0, kShownOfLine)) shown += stays(c) || c == ' ' ? c : '?';
    fail_run(fmt::format("{}:{}: damaged witness: {}, found '{}'", label_, number_, what, shown));
  }
  std::string_view next_line() {
    ++number_;
    const std::size_t end = text_.find('\n', at_);
    line_ = text_.substr(at_, end == std::string_view::npos ? end : end - at_);
    if (end == std::string_view::npos)
      fail("the file ends within a slot, as it does when a run is killed; --resume drops such a slot");
    at_ = end + 1;
    return line_;
  }
  void add_name(const std::vector<std::string_view>& words) {
    if (words.size() != 5 || read_count(words[1]) != static_cast<std::int64_t>(names.size()))
      fail(fmt::format("expected 'name {}', phase, layer and tensor", names.size()));
    const auto layer = read_name(words[3]), tensor = read_name(words[4]);
    if (std::ranges::find(kPhases, words[2]) == kPhases.end() || !layer || !tensor)
      fail("expected a phase, a layer and a tensor");
    names.push_back({std::string(words[2]), *layer, *tensor});
  }
  WitnessEntry entry(const std::vector<std::string_view>& words) const {
    const auto name = words.size() == 3 ? read_count(words[0]) : std::nullopt;
    const auto micro = words.size() == 3 ? read_count(words[1]) : std::nullopt;
    const auto digest = words.size() == 3 ? read_digest(words[2]) : std::nullopt;
    if (!name || !micro || !digest) fail("expected a tensor's number, its micro-batch and 32 digits");
    if (*name >= static_cast<std::int64_t>(names.size())) fail(fmt::format("tensor {} has no name", *name));
    return {static_cast<std::size_t>(*name), *micro, *digest};
  }
  void finish(const std::vector<std::string_view>& words, const WitnessSlot& slot,
              std::string_view lines) const {
    if (words.size() != 4 || read_count(words[1]) != slot.slot ||
        read_count(words[2]) != static_cast<std::int64_t>(slot.entries.size()))
      fail(fmt::format("expected 'end {} {}' and 32 digits", slot.slot, slot.entries.size()));
    if (words[3] != digest_of(lines))
      fail(fmt::format("the lines of slot {} have another digest than its end says", slot.slot));
  }

  std::string_view text_, line_;
  const std::string label_;
  std::size_t at_ = 0, whole_ = 0, kept_names_ = 0;
  std::int64_t number_ = 0, last_ = -1;
};

}  // namespace

const WitnessSlot* WitnessRecord::find(std::int64_t slot) const {
  const auto found = std::ranges::lower_bound(slots, slot, {}, &WitnessSlot::slot);
  return found == slots.end() || found->slot != slot ? nullptr : &*found;
}

std::string witness_file_name(int rank) {
  return fmt::format("witness.rank{}.txt", rank);
}

WitnessRecord parse_witness(std::string_view text, const std::string& label) {
  WitnessReader reader(text, label);
  WitnessRecord record;
  reader.read_header();
  while (std::optional<WitnessSlot> slot = reader.next()) record.slots.push_back(std::move(*slot));
  record.names = std::move(reader.names);
  return record;
}

WitnessHead witness_head(std::string_view text, const std::string& label, std::int64_t end) {
  WitnessReader reader(text, label);
  WitnessHead head;
  try {
    reader.read_header();
    while (true) {
      head.bytes = reader.whole();
      head.names = reader.kept_names();
      const std::optional<WitnessSlot> slot = reader.next();
      if (!slot || slot->slot >= end) return head;
    }
  } catch (const Error& error) {
    head.damage = error.what();
  }
  return head;
}

WitnessText::WitnessText(std::span<const WitnessName> names) {
  for (const WitnessName& name : names)
    numbers_.emplace(fmt::format("{} {} {}", name.phase, written(name.layer), written(name.tensor)),
                     numbers_.size());
}

std::string WitnessText::header() {
  return std::string(kHeader) + "\n";
}

// A slot that was begun and not completed leaves no names: the file does not have them.
void WitnessText::begin_slot(std::int64_t slot) {
  for (const std::string& name : fresh_) numbers_.erase(name);
  fresh_.clear();
  text_ = fmt::format("slot {}\n", slot);
  slot_ = slot;
  entries_ = 0;
  in_slot_ = true;
}

void WitnessText::add(std::string_view phase, std::string_view layer, std::string_view tensor,
                      std::int64_t micro, std::string_view digest) {
  std::string name = fmt::format("{} {} {}", phase, written(layer), written(tensor));
  auto found = numbers_.find(name);
  if (found == numbers_.end()) {
    found = numbers_.emplace(name, numbers_.size()).first;
    text_ += fmt::format("name {} {}\n", found->second, name);
    fresh_.push_back(std::move(name));
  }
  text_ += fmt::format("{} {} {}\n", found->second, micro, digest);
  ++entries_;
}

std::string_view WitnessText::end_slot() {
  text_ += fmt::format("end {} {} {}\n", slot_, entries_, digest_of(text_));
  fresh_.clear();
  in_slot_ = false;
  return text_;
}

std::vector<WitnessRecord> read_witnesses(FileSystem& files, const std::string& attempt) {
  std::vector<WitnessRecord> records;
  std::size_t there = 0;
  for (const DirectoryEntry& entry : files.list(attempt))
    there += entry.name.starts_with("witness.rank") && entry.name.ends_with(".txt") ? 1 : 0;
  for (std::size_t rank = 0; rank < there; ++rank) {
    const std::string path = attempt + "/" + witness_file_name(static_cast<int>(rank));
    if (!files.exists(path))
      fail_run(fmt::format("{} is missing, and the attempt has witnesses of {} ranks; expected one of each",
                           path, there));
    records.push_back(parse_witness(read_text(files, path, kLargestWitness), path));
  }
  return records;
}

}  // namespace tenon::train
