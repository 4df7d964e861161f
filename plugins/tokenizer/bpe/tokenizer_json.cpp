// Vocabulary and merges, of which a file has hundreds of thousands, are read by events into vectors;
// everything else becomes a Value. A byte is written as a character: printable ones of Latin-1 as themselves,
// the others as U+0100 and the following ones.
#include "tokenizer_json.hpp"

#include "splitter.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/sdk/json.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

namespace tenon::bpe {
namespace {

constexpr std::int64_t kMostGaps = 65536;  // ids without a token, more than there are tokens

/// The characters that stand for bytes.
class ByteCharacters {
 public:
  ByteCharacters() {
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool itself =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      const int point = itself ? byte : next++;
      bytes_[static_cast<std::size_t>(point)] = byte;
      std::string& text = characters_[static_cast<std::size_t>(byte)];
      if (point < 0x80) {
        text = static_cast<char>(point);
      } else {
        text = static_cast<char>(0xC0 | (point >> 6));
        text += static_cast<char>(0x80 | (point & 0x3F));
      }
    }
  }
  std::string characters_of(std::string_view bytes) const {
    std::string text;
    for (const char byte : bytes) text += characters_[static_cast<unsigned char>(byte)];
    return text;
  }
  /// The bytes of valid UTF-8, or nothing where a character stands for none.
  std::optional<std::string> bytes_of(std::string_view text) const {
    std::string bytes;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = utf8_length(text.substr(at));
      const auto first = static_cast<unsigned char>(text[at]);
      const int point = length == 1 ? first
                        : length == 2
                            ? ((first & 0x1F) << 6) | (static_cast<unsigned char>(text[at + 1]) & 0x3F)
                            : -1;
      const auto found = point < 0 ? bytes_.end() : bytes_.find(static_cast<std::size_t>(point));
      if (found == bytes_.end()) return std::nullopt;
      bytes += static_cast<char>(found->second);
      at += length;
    }
    return bytes;
  }

 private:
  std::array<std::string, 256> characters_;
  std::unordered_map<std::size_t, int> bytes_;
};

struct Entry {
  std::string text;
  std::int64_t id = 0;
};

/// The events of a file.
class FileEvents {
 public:
  explicit FileEvents(const std::string& label) : label_(label), tree_(label) {}

  std::vector<Entry> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  Value take() { return tree_.take(); }

  bool null() {
    if (part_ != Part::kRest) unexpected("null");
    return true;
  }
  bool boolean(bool value) { return add(Value(value), "a boolean"); }
  bool number_integer(std::int64_t value) { return number(value); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return number(static_cast<std::int64_t>(value));
    return add(Value(static_cast<double>(value)), "a number that is no id");
  }
  bool number_float(double value, const std::string&) { return add(Value(value), "a number that is no id"); }
  bool string(std::string& value) {
    if (part_ == Part::kMerges) {
      const std::size_t space = value.find(' ');
      if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos)
        fail_config(
            fmt::format("{}: model.merges[{}]: expected two tokens with a space between them, found '{}'",
                        label_, merges.size(), value));
      merges.emplace_back(value.substr(0, space), value.substr(space + 1));
      return true;
    }
    if (part_ == Part::kPair) {
      if (++of_pair_ == 1)
        merges.emplace_back(std::move(value), "");
      else if (of_pair_ == 2)
        merges.back().second = std::move(value);
      else
        unexpected("a third token");
      return true;
    }
    return add(Value(std::move(value)), "a text");
  }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) {
    if (part_ != Part::kRest) unexpected("a table");
    if (tree_.is_at({"model", "vocab"})) {
      part_ = Part::kVocabulary;
      return true;
    }
    return open(Value());
  }
  bool start_array(std::size_t) {
    if (part_ == Part::kMerges) {
      part_ = Part::kPair;
      of_pair_ = 0;
      return true;
    }
    if (part_ != Part::kRest) unexpected("a list");
    if (tree_.is_at({"model", "merges"})) {
      part_ = Part::kMerges;
      return true;
    }
    return open(Value(Value::Array()));
  }
  bool key(std::string& name) {
    if (part_ == Part::kVocabulary) {
      vocabulary.push_back({std::move(name), 0});
      return true;
    }
    tree_.key(std::move(name));
    return true;
  }
  bool end_object() {
    if (part_ == Part::kVocabulary) {
      part_ = Part::kRest;
      return true;
    }
    return close();
  }
  bool end_array() {
    if (part_ == Part::kPair) {
      if (of_pair_ != 2) unexpected("a list of fewer than two tokens");
      part_ = Part::kMerges;
      return true;
    }
    if (part_ == Part::kMerges) {
      part_ = Part::kRest;
      return true;
    }
    return close();
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    fail_config(fmt::format("{}: not valid JSON at byte {}: {}", label_, position, error.what()));
  }

 private:
  enum class Part { kRest, kVocabulary, kMerges, kPair };

  [[noreturn]] void unexpected(const char* found) const {
    if (part_ == Part::kVocabulary)
      fail_config(fmt::format("{}: model.vocab: expected a whole number for token '{}', found {}", label_,
                              vocabulary.empty() ? "" : vocabulary.back().text, found));
    fail_config(
        fmt::format("{}: model.merges[{}]: expected two tokens, as \"a b\" or [\"a\", \"b\"], found {}",
                    label_, part_ == Part::kPair && of_pair_ > 0 ? merges.size() - 1 : merges.size(), found));
  }
  bool number(std::int64_t value) {
    if (part_ == Part::kVocabulary) {
      vocabulary.back().id = value;
      return true;
    }
    return add(Value(value), "a number");
  }
  bool add(Value value, const char* what) {
    if (part_ != Part::kRest) unexpected(what);
    tree_.add(std::move(value));
    return true;
  }
  bool open(Value value) {
    tree_.open(std::move(value));
    return true;
  }
  bool close() {
    tree_.close();
    return true;
  }

  const std::string& label_;
  Part part_ = Part::kRest;
  int of_pair_ = 0;
  JsonTree tree_;
};

/// One table of the file, and its place there. Keys that were never read are refused at the end.
class Table {
 public:
  Table(const Value& value, std::string place, const std::string& label)
      : value_(value), place_(std::move(place)), label_(label) {
    if (!value.is_table()) refuse("", value, "a table");
  }

  const Value* find(const std::string& key) {
    asked_.insert(key);
    return value_.find(key);
  }
  /// The table of this key. Throws when it is absent and `otherwise` says what the file should have.
  Table table(const std::string& key, const char* otherwise) {
    const Value* found = find(key);
    if (found == nullptr)
      fail_config(fmt::format("{}: {}: expected {}, found nothing", label_, at(key), otherwise));
    return Table(*found, at(key), label_);
  }
  std::string text(const std::string& key, const std::string& otherwise) {
    const Value* found = find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_text()) refuse(key, *found, "a text");
    return found->text();
  }
  bool boolean(const std::string& key, bool otherwise) {
    const Value* found = find(key);
    if (found == nullptr) return otherwise;
    if (found->type() != Value::Type::kBoolean) refuse(key, *found, "true or false");
    return found->boolean();
  }
  /// Absent, or a value that means as much as nothing.
  void expect_none(const std::string& key, std::initializer_list<const char*> also = {}) {
    const Value* found = find(key);
    if (found == nullptr) return;
    for (const char* value : also)
      if (found->inline_toml() == value) return;
    refuse(key, *found, "null");
  }
  void expect(const std::string& key, const std::string& expected) {
    const Value* found = find(key);
    if (found == nullptr)
      fail_config(fmt::format("{}: {}: expected {}, found nothing", label_, at(key), expected));
    if (!found->is_text() || found->text() != expected) refuse(key, *found, expected);
  }
  void expect(const std::string& key, bool expected, bool otherwise) {
    if (boolean(key, otherwise) != expected)
      fail_config(
          fmt::format("{}: {}: expected {}, found {}; byte-level BPE as GPT-2, Llama 3 and phi-4 have it "
                      "is supported",
                      label_, at(key), expected, !expected));
  }
  void expect_no_more() {
    for (const Member& member : value_.table())
      if (asked_.count(member.key) == 0)
        fail_config(
            fmt::format("{}: {}: unknown key, its value is {}", label_, at(member.key), shown(member.value)));
  }
  [[noreturn]] void refuse(const std::string& key, const Value& found, const std::string& expected) const {
    fail_config(
        fmt::format("{}: {}: expected {}, found {}; byte-level BPE as GPT-2, Llama 3 and phi-4 have it is "
                    "supported",
                    label_, at(key), expected, shown(found)));
  }
  std::string at(const std::string& key) const {
    if (place_.empty()) return key.empty() ? "the file" : key;
    return key.empty() ? place_ : place_ + "." + key;
  }
  const std::string& label() const { return label_; }

 private:
  static std::string shown(const Value& value) {
    std::string text = value.inline_toml();
    if (text.size() > 120) text = text.substr(0, 120) + "...";
    return text;
  }

  const Value& value_;
  std::string place_;
  const std::string& label_;
  std::set<std::string> asked_;
};

std::string byte_level(Table table, const std::string& split_before) {
  table.expect("type", "ByteLevel");
  table.expect("add_prefix_space", false, true);
  table.boolean("trim_offsets", true);  // of positions, which are not given
  const bool regex = table.boolean("use_regex", true);
  table.expect_no_more();
  if (regex && !split_before.empty())
    fail_config(fmt::format("{}: {}: expected false after a Split, found true", table.label(),
                            table.at("use_regex")));
  return regex ? std::string(kGpt2Pattern) : split_before;
}

std::string split_pattern(Table table) {
  table.expect("type", "Split");
  Table pattern = table.table("pattern", "a table with Regex");
  const Value* regex = pattern.find("Regex");
  if (regex == nullptr || !regex->is_text() || regex->text().empty())
    fail_config(fmt::format("{}: {}: expected a text", table.label(), pattern.at("Regex")));
  pattern.expect_no_more();
  const std::string behavior = table.text("behavior", "");
  const bool invert = table.boolean("invert", false);
  // Both keep matches as pieces. The second one, of tiktoken's files, drops what no match covers, and their
  // patterns cover everything.
  if (behavior != "Isolated" && !(behavior == "Removed" && invert))
    fail_config(fmt::format("{}: {}: expected Isolated, or Removed with invert, found {}", table.label(),
                            table.at("behavior"), behavior));
  table.expect_no_more();
  return regex->text();
}

std::string pattern_of(Table& root) {
  Table first = root.table("pre_tokenizer", "ByteLevel, or a Sequence of Split and ByteLevel");
  if (first.text("type", "") != "Sequence") return byte_level(first, "");
  const Value* parts = first.find("pretokenizers");
  first.expect_no_more();
  if (parts == nullptr || !parts->is_array() || parts->array().empty() || parts->array().size() > 2)
    fail_config(fmt::format("{}: {}: expected Split and ByteLevel", root.label(), first.at("pretokenizers")));
  const auto part = [&](std::size_t i) {
    return Table(parts->array()[i], fmt::format("{}[{}]", first.at("pretokenizers"), i), root.label());
  };
  if (parts->array().size() == 1) return byte_level(part(0), "");
  const std::string pattern = split_pattern(part(0));
  return byte_level(part(1), pattern);
}

/// A post-processor adds special tokens to what is encoded, which encode() never does.
void check_post_processor(const Value& value, const std::string& place, const std::string& label) {
  Table table(value, place, label);
  const std::string type = table.text("type", "");
  if (type == "ByteLevel" || type == "TemplateProcessing") return;
  const Value* parts = table.find("processors");
  if (type != "Sequence" || parts == nullptr || !parts->is_array()) {
    if (const Value* found = table.find("type"))
      table.refuse("type", *found, "ByteLevel or TemplateProcessing");
    fail_config(fmt::format("{}: {}: expected ByteLevel or TemplateProcessing", label, table.at("type")));
  }
  for (std::size_t i = 0; i < parts->array().size(); ++i)
    check_post_processor(parts->array()[i], fmt::format("{}[{}]", table.at("processors"), i), label);
}

std::vector<SpecialToken> special_tokens(Table& root) {
  std::vector<SpecialToken> special;
  const Value* list = root.find("added_tokens");
  if (list == nullptr) return special;
  if (!list->is_array()) root.refuse("added_tokens", *list, "a list");
  for (std::size_t i = 0; i < list->array().size(); ++i) {
    Table token(list->array()[i], fmt::format("added_tokens[{}]", i), root.label());
    const Value* id = token.find("id");
    if (id == nullptr || id->type() != Value::Type::kInteger || id->integer() < 0 ||
        id->integer() >= kMostTokens)
      fail_config(fmt::format("{}: {}: expected a whole number from 0 to {}, found {}", root.label(),
                              token.at("id"), kMostTokens - 1,
                              id == nullptr ? "nothing" : id->inline_toml()));
    const std::string text = token.text("content", "");
    if (text.empty())
      fail_config(fmt::format("{}: {}: expected a text, found none", root.label(), token.at("content")));
    token.expect("special", true, false);
    // How texts of special tokens are found in a text, which encode() never does.
    for (const char* key : {"single_word", "lstrip", "rstrip", "normalized"}) token.boolean(key, false);
    token.expect_no_more();
    special.push_back({text, static_cast<std::int32_t>(id->integer())});
  }
  std::sort(special.begin(), special.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (std::size_t i = 1; i < special.size(); ++i)
    if (special[i].id == special[i - 1].id)
      fail_config(fmt::format("{}: added_tokens: '{}' and '{}' have the id {}", root.label(),
                              special[i - 1].text, special[i].text, special[i].id));
  return special;
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Everything but vocabulary and merges: sets what this tokenizer reads, and refuses what it has not.
void read_settings(const Value& value, const std::string& label, Description& made) {
  Table root(value, "", label);
  root.text("version", "1.0");
  root.expect_none("truncation");
  root.expect_none("padding");
  root.expect_none("normalizer");

  made.special = special_tokens(root);
  made.pattern = pattern_of(root);
  if (const Value* processor = root.find("post_processor"))
    check_post_processor(*processor, "post_processor", label);
  Table decoder = root.table("decoder", "ByteLevel");
  decoder.expect("type", "ByteLevel");

  Table model = root.table("model", "BPE");
  if (model.find("type") != nullptr) model.expect("type", "BPE");
  model.expect_none("dropout", {"0", "0.0"});
  model.find("unk_token");  // every byte has a token, so nothing is unknown
  model.expect_none("continuing_subword_prefix", {"\"\"", "''"});
  model.expect_none("end_of_word_suffix", {"\"\"", "''"});
  model.boolean("fuse_unk", false);
  model.expect("byte_fallback", false, false);
  made.ignore_merges = model.boolean("ignore_merges", false);
  for (const char* key : {"vocab", "merges"})
    if (const Value* found = model.find(key)) model.refuse(key, *found, key[0] == 'v' ? "a table" : "a list");
  model.expect_no_more();
  root.expect_no_more();
}

/// By the tokens' own texts, in which merges name them.
using TokenIds = std::unordered_map<std::string_view, std::int32_t>;

/// Refuses ids that are out of range, and texts that are listed twice. `largest`: of all ids.
TokenIds ids_of_tokens(const FileEvents& events, std::span<const SpecialToken> special,
                       const std::string& label, std::int64_t& largest) {
  largest = -1;
  TokenIds ids;
  ids.reserve(events.vocabulary.size());
  for (const Entry& entry : events.vocabulary) {
    if (entry.id < 0 || entry.id >= kMostTokens)
      fail_config(fmt::format("{}: model.vocab: token '{}' has the id {}, expected 0 to {}", label,
                              entry.text, entry.id, kMostTokens - 1));
    if (!ids.emplace(entry.text, static_cast<std::int32_t>(entry.id)).second)
      fail_config(fmt::format("{}: model.vocab: token '{}' is listed twice", label, entry.text));
    largest = std::max(largest, entry.id);
  }
  for (const SpecialToken& token : special) {
    largest = std::max<std::int64_t>(largest, token.id);
    const auto found = ids.find(token.text);
    if (found != ids.end() && found->second != token.id)
      fail_config(fmt::format("{}: added_tokens: '{}' has the id {}, and {} in model.vocab", label,
                              token.text, token.id, found->second));
  }
  const auto count = static_cast<std::int64_t>(events.vocabulary.size() + special.size());
  if (largest + 1 > 2 * count + kMostGaps)
    fail_config(
        fmt::format("{}: model.vocab: the largest id is {}, and there are {} tokens; expected at most {} ids "
                    "without a token",
                    label, largest, count, count + kMostGaps));
  return ids;
}

/// Fills the tokens of `made`, whose special ones are known, with the bytes that they stand for.
void read_tokens(const FileEvents& events, const std::string& label, std::int64_t largest,
                 Description& made) {
  made.tokens.resize(static_cast<std::size_t>(largest + 1));
  for (const SpecialToken& token : made.special) made.tokens[static_cast<std::size_t>(token.id)] = token.text;
  const auto is_special = [&](std::int64_t id) {
    return std::ranges::binary_search(made.special, id, {},
                                      [](const SpecialToken& token) { return std::int64_t{token.id}; });
  };
  const ByteCharacters characters;
  for (const Entry& entry : events.vocabulary) {
    std::string& bytes = made.tokens[static_cast<std::size_t>(entry.id)];
    if (is_special(entry.id)) {
      if (bytes != entry.text)
        fail_config(fmt::format("{}: model.vocab: id {} is token '{}', and '{}' in added_tokens", label,
                                entry.id, entry.text, bytes));
      continue;
    }
    if (!bytes.empty())
      fail_config(fmt::format("{}: model.vocab: token '{}' and another one have the id {}", label, entry.text,
                              entry.id));
    const auto found = characters.bytes_of(entry.text);
    if (!found || found->empty())
      fail_config(
          fmt::format("{}: model.vocab: token '{}', id {}, is not made of characters that stand for bytes",
                      label, entry.text, entry.id));
    bytes = *found;
  }
}

void read_merges(const FileEvents& events, const TokenIds& ids, const std::string& label, Description& made) {
  made.merges.reserve(events.merges.size());
  std::string joined;
  for (std::size_t i = 0; i < events.merges.size(); ++i) {
    const std::string &left = events.merges[i].first, &right = events.merges[i].second;
    const auto id_of = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found == ids.end())
        fail_config(fmt::format("{}: model.merges[{}]: '{}' and '{}': there is no token '{}'", label, i, left,
                                right, token));
      return found->second;
    };
    joined = left + right;
    made.merges.push_back({id_of(left), id_of(right), id_of(joined)});
  }
}

}  // namespace

Description read_tokenizer_json(std::string_view text, const std::string& label) {
  FileEvents events(label);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  Description made;
  read_settings(events.take(), label, made);
  std::int64_t largest = -1;
  const TokenIds ids = ids_of_tokens(events, made.special, label, largest);
  read_tokens(events, label, largest, made);
  read_merges(events, ids, label, made);
  return made;
}

std::string write_tokenizer_json(const Description& description) {
  const ByteCharacters characters;
  std::string out =
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  for (std::size_t i = 0; i < description.special.size(); ++i) {
    const SpecialToken& token = description.special[i];
    out += fmt::format(
        "{}\n    {{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": "
        "false, \"normalized\": false, \"special\": true}}",
        i == 0 ? "" : ",", token.id, json_text(token.text));
  }
  out += description.special.empty() ? "],\n" : "\n  ],\n";
  out += "  \"normalizer\": null,\n  \"pre_tokenizer\": ";
  const auto level = [](bool regex) {
    return fmt::format(
        "{{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
        "\"use_regex\": {}}}",
        regex);
  };
  if (description.pattern.empty() || description.pattern == kGpt2Pattern)
    out += level(!description.pattern.empty());
  else
    out += fmt::format(
        "{{\"type\": \"Sequence\", \"pretokenizers\": [\n    {{\"type\": \"Split\", \"pattern\": "
        "{{\"Regex\": {}}}, \"behavior\": \"Isolated\", \"invert\": false}},\n    {}]}}",
        json_text(description.pattern), level(false));
  out += fmt::format(",\n  \"post_processor\": null,\n  \"decoder\": {},\n", level(true));
  out += fmt::format(
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n    "
      "\"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": "
      "false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": {},\n    \"vocab\": {{",
      description.ignore_merges);
  std::size_t special = 0;
  bool first = true;
  std::vector<std::string> texts(description.tokens.size());
  for (std::size_t id = 0; id < description.tokens.size(); ++id) {
    if (special < description.special.size() &&
        description.special[special].id == static_cast<std::int64_t>(id)) {
      ++special;
      continue;
    }
    if (description.tokens[id].empty()) continue;
    texts[id] = json_text(characters.characters_of(description.tokens[id]));
    out += fmt::format("{}\n      {}: {}", first ? "" : ",", texts[id], id);
    first = false;
  }
  out += "\n    },\n    \"merges\": [";
  for (std::size_t i = 0; i < description.merges.size(); ++i)
    out += fmt::format("{}\n      [{}, {}]", i == 0 ? "" : ",",
                       texts[static_cast<std::size_t>(description.merges[i].left)],
                       texts[static_cast<std::size_t>(description.merges[i].right)]);
  out += "\n    ]\n  }\n}\n";
  return out;
}

}  // namespace tenon::bpe
