// A conversation of n tokens has n - 1 places: at place i token i is read and token i + 1 predicted. A row is
// a list of pieces of conversations, whatever the packing.
#include "conversations.hpp"

#include "packing.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/sdk/json.hpp>
#include <tenon/sdk/permutation.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

namespace tenon::text {
namespace {

/// Lines of a file that cannot be used: how many, and the first few with their reasons.
class UnusableLines {
 public:
  void add(std::int64_t line, const std::string& reason) {
    if (++count_ <= kShown) shown_ += fmt::format("{}line {}: {}", count_ == 1 ? "" : "; ", line, reason);
  }
  std::int64_t count() const { return count_; }
  std::string text() const {
    return count_ <= kShown ? shown_ : fmt::format("{}; and {} more", shown_, count_ - kShown);
  }

 private:
  static constexpr std::int64_t kShown = 3;
  std::int64_t count_ = 0;
  std::string shown_;
};

}  // namespace

Conversations::Conversations(const Options& options, Host& host)
    : IndexedDataset("data.conversations", options, OwnSplit{}),
      host_(host),
      tokenizer_(options.component<Tokenizer>("tokenizer") != nullptr
                     ? options.component<Tokenizer>("tokenizer")
                     : &bytes_),
      template_("data.conversations", options, *tokenizer_),
      path_(options.text("path")),
      val_path_(options.has("val_path") ? options.text("val_path") : ""),
      val_fraction_(options.real("val_fraction")),
      max_bad_share_(options.real("max_bad_share")),
      context_(options.integer("context")),
      pack_(options.choice("pack", kPacks)) {}

void* Conversations::query(std::string_view interface_id) {
  if (interface_id == TokenizedText::kId) return static_cast<TokenizedText*>(this);
  return interface_id == ConversationText::kId ? static_cast<ConversationText*>(this) : nullptr;
}

void Conversations::read_file(const std::string& path, Part& part) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_config(fmt::format("data file '{}': cannot open it", path));
  UnusableLines bad;
  std::int64_t number = 0, lines = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    ++lines;
    const std::size_t first = tokens_.ids.size();
    try {
      template_.conversation(parse_json(text, "its text"), tokens_);
      const auto places = static_cast<std::int64_t>(tokens_.ids.size() - first) - 1;
      if (pack_ != Pack::kDocuments && places > context_) {
        fail_config(
            fmt::format("{} places, and a row has context = {}; raise context, or set pack = "
                        "\"documents\", which cuts",
                        places, context_));
      }
      part.conversations.push_back({static_cast<std::int64_t>(first), places});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      tokens_.ids.resize(first);
      tokens_.learned.resize(first);
      bad.add(number, error.what());
    }
  }
  if (file.bad()) fail_config(fmt::format("data file '{}': cannot be read beyond line {}", path, number));
  if (lines == 0)
    fail_config(fmt::format("data file '{}': expected a conversation a line, found none", path));
  if (bad.count() == 0) return;
  const std::string found =
      fmt::format("data file '{}': {} of {} lines cannot be used: {}", path, bad.count(), lines, bad.text());
  if (bad.count() == lines) fail_config(found + ". None is left to train on");
  if (static_cast<double>(bad.count()) > max_bad_share_ * static_cast<double>(lines)) {
    fail_config(fmt::format("{}. That is more than max_bad_share = {} allows; mend the file, or raise it",
                            found, max_bad_share_));
  }
  if (host_.rank() == 0) host_.log(LogLevel::kWarning, found + ". They are left out");
}

// The last places of a permutation whose key depends on no seed, as in the base's mixed split. Whole
// conversations are held out before rows are made: a row that is cut would put one into both parts.
void Conversations::hold_out() {
  const std::size_t count = train_.conversations.size();
  const auto held = static_cast<std::size_t>(std::llround(static_cast<double>(count) * val_fraction_));
  if (held == 0) return;
  const Permutation mix(count, random_key(0, "split"), 0);
  std::vector<bool> held_out(count, false);
  for (std::size_t place = count - held; place < count; ++place) held_out[mix(place)] = true;
  std::vector<Piece> kept;
  for (std::size_t i = 0; i < count; ++i)
    (held_out[i] ? val_.conversations : kept).push_back(train_.conversations[i]);
  train_.conversations = std::move(kept);
}

void Conversations::fill_rows(Part& part, std::string_view name) const {
  const auto end_row = [&] { part.begins.push_back(static_cast<std::int64_t>(part.pieces.size())); };
  std::int64_t used = 0;
  if (pack_ == Pack::kWhole) {
    std::vector<std::int64_t> lengths;
    for (const Piece& conversation : part.conversations) lengths.push_back(conversation.places);
    const Packing packing = best_fit(lengths, context_);
    for (std::int64_t row = 0; row < packing.rows(); ++row) {
      for (const std::int64_t i : packing.row(row)) part.pieces.push_back(part.conversations[i]);
      end_row();
    }
  } else if (pack_ == Pack::kNone) {
    for (const Piece& conversation : part.conversations) {
      part.pieces.push_back(conversation);
      end_row();
    }
  } else {
    std::int64_t room = context_;
    for (Piece rest : part.conversations) {
      while (rest.places > 0) {
        const std::int64_t now = std::min(rest.places, room);
        part.pieces.push_back({rest.first, now});
        rest = {rest.first + now, rest.places - now};
        room -= now;
        if (room > 0) continue;
        end_row();
        room = context_;
      }
    }
    if (room < context_) end_row();
  }
  for (const Piece& piece : part.pieces) used += piece.places;
  if (host_.rank() != 0 || part.rows() == 0) return;
  const auto places = static_cast<double>(part.rows() * context_);
  host_.log(LogLevel::kInfo, fmt::format("{}: {} conversations in {} rows of {} places, of which {:.2f} % "
                                         "are padding",
                                         name, part.conversations.size(), part.rows(), context_,
                                         100 * (1 - static_cast<double>(used) / places)));
}

IndexedContent Conversations::load() {
  read_file(path_, train_);
  if (val_path_.empty()) {
    hold_out();
  } else {
    read_file(val_path_, val_);
  }
  fill_rows(train_, "train");
  fill_rows(val_, "val");
  IndexedContent content;
  const auto field = [&](const char* name, bool is_target) {
    content.fields.push_back({name, DType::kI32, Shape{context_}});
    content.is_target.push_back(is_target);
  };
  field("tokens", false);
  field("targets", true);
  if (pack_ != Pack::kNone) {
    field("documents", false);
    field("positions", false);
  }
  content.attributes = {{"vocabulary", tokenizer_->vocabulary()}};
  const std::unique_ptr<FileSystem> system = make_posix_files();
  content.sources = {{path_, sha256_of_file(*system, path_)}};
  if (!val_path_.empty()) content.sources.push_back({val_path_, sha256_of_file(*system, val_path_)});
  if (tokenizer_ != &bytes_) content.sources.push_back({"tokenizer", std::string(tokenizer_->digest())});
  content.samples = train_.rows();
  if (val_.rows() > 0) content.val_samples = val_.rows();
  return content;
}

void Conversations::opened(DataInfo& info) {
  info.tokens_per_sample = context_;
  info.bytes_per_target = bytes_per_target();
}

double Conversations::bytes_per_target() const {
  const std::span<const SpecialToken> special = tokenizer_->special();
  const auto is_special = [&](std::int32_t id) {
    const auto found =
        std::lower_bound(special.begin(), special.end(), id,
                         [](const SpecialToken& token, std::int32_t wanted) { return token.id < wanted; });
    return found != special.end() && found->id == id;
  };
  std::int64_t bytes = 0, targets = 0;
  for (const Piece& piece : val_.pieces) {
    for (std::int64_t i = piece.first + 1; i <= piece.first + piece.places; ++i) {
      if (!tokens_.learned[i]) continue;
      ++targets;
      const std::int32_t id = tokens_.ids[i];
      if (!is_special(id)) bytes += static_cast<std::int64_t>(tokenizer_->token_bytes(id).size());
    }
  }
  return targets == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(targets);
}

void Conversations::copy(bool from_val_files, std::int64_t index, std::int64_t row,
                         std::span<const TensorView> fields) const {
  const Part& part = from_val_files ? val_ : train_;
  const auto line = [&](std::size_t field) { return fields[field].as<std::int32_t>() + row * context_; };
  std::int32_t* const tokens = line(0);
  std::int32_t* const targets = line(1);
  std::int32_t* const documents = pack_ == Pack::kNone ? nullptr : line(2);
  std::int32_t* const positions = pack_ == Pack::kNone ? nullptr : line(3);
  std::int64_t at = 0;
  std::int32_t document = 0;
  for (std::int64_t p = part.begins[index]; p < part.begins[index + 1]; ++p, ++document) {
    const Piece& piece = part.pieces[p];
    for (std::int64_t i = 0; i < piece.places; ++i, ++at) {
      const std::int64_t token = piece.first + i;
      tokens[at] = tokens_.ids[token];
      targets[at] = tokens_.learned[token + 1] ? tokens_.ids[token + 1] : -1;
      if (documents == nullptr) continue;
      documents[at] = document;
      positions[at] = static_cast<std::int32_t>(i);
    }
  }
  std::fill(tokens + at, tokens + context_, 0);
  std::fill(targets + at, targets + context_, -1);
  if (documents == nullptr) return;
  std::fill(documents + at, documents + context_, document);
  std::fill(positions + at, positions + context_, 0);
}

}  // namespace tenon::text
