// Splitting, ordering, packing and copying of source.hpp.
#include "source.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/permutation.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tenon::text {

Source::Source(const SourceSpec& spec, RandomKey key, Host& host)
    : spec_(spec), key_(key), corpus_(spec.corpus, spec.path, host) {
  if (!spec_.val_path.empty()) val_corpus_.emplace(spec_.corpus, spec_.val_path, host);
  if (spec_.pack != Pack::kStream) {
    require_documents(corpus_);
    if (val_corpus_) require_documents(*val_corpus_);
  }
  split();
  if (spec_.pack == Pack::kWhole) {
    train_rows_ = pack(train_);
    val_rows_ = pack(val_);
  }
  check_sizes();
  check_tokens();
  if (spec_.pack == Pack::kWhole && host.rank() == 0)
    host.log(LogLevel::kInfo,
             fmt::format("{}: '{}': {} {} in {} rows of {} tokens to train on, {:.2f} % of them padding",
                         spec_.corpus.owner, spec_.path, train_rows_.pieces.size(),
                         spec_.split_long ? "documents and parts of long ones" : "documents", train_samples(),
                         spec_.context, 100 * padding()));
}

std::vector<DataSource> Source::files() const {
  std::vector<DataSource> found = corpus_.sources();
  if (val_corpus_) found.insert(found.end(), val_corpus_->sources().begin(), val_corpus_->sources().end());
  return found;
}

std::int64_t Source::train_samples() const {
  return spec_.pack == Pack::kWhole ? train_rows_.packing.rows() : (train_.count - 1) / spec_.context;
}

// Windows that predict all but the first token; the last may be partial.
std::int64_t Source::val_samples() const {
  if (spec_.pack == Pack::kWhole) return val_rows_.packing.rows();
  return val_.count < 2 ? 0 : (val_.count - 2) / spec_.context + 1;
}

void Source::require_documents(const Corpus& corpus) const {
  if (!corpus.documents().empty()) return;
  fail_config(fmt::format(
      "{}: pack = \"{}\" needs documents, and '{}' has none that are known; {}", spec_.corpus.owner,
      spec_.pack == Pack::kWhole ? "whole" : "documents", corpus.path(),
      corpus.is_text() ? "set separator_line, separator_byte or jsonl_key"
                       : "encode the text with `tenon tokenize encode`, which writes an index beside it"));
}

// Rows of whole documents: those that begin in the held-out tail are held out.
void Source::split() {
  const std::int64_t count = corpus_.tokens().size();
  /// The end of a share of tokens; of whole documents the first that begins there.
  const auto end_of = [&](double tokens) {
    const auto end = static_cast<std::int64_t>(tokens);
    if (spec_.pack != Pack::kWhole) return end;
    const auto documents = corpus_.documents();
    const auto next = std::lower_bound(documents.begin(), documents.end(), end);
    return next == documents.end() ? count : *next;
  };
  const double held_out = val_corpus_ ? 0 : spec_.val_fraction;
  const std::int64_t train = held_out > 0 ? end_of(static_cast<double>(count) * (1.0 - held_out)) : count;
  const double used = static_cast<double>(train) * spec_.train_fraction;
  train_ = {false, 0, spec_.train_fraction < 1 ? std::min(train, end_of(used)) : train};
  if (val_corpus_)
    val_ = {true, 0, val_corpus_->tokens().size()};
  else
    val_ = {false, train, count - train};
}

void Source::check_sizes() const {
  if (val_corpus_ && val_corpus_->is_text() != corpus_.is_text()) {
    fail_config(fmt::format("data files '{}' and '{}': expected one format, found {} and {}", spec_.path,
                            spec_.val_path, corpus_.format(), val_corpus_->format()));
  }
  const std::string found = fmt::format("'{}' has {} tokens, {} of them to train on and {} to validate on",
                                        spec_.path, corpus_.tokens().size(), train_.count, val_.count);
  const std::int64_t samples = train_samples();
  const bool whole = spec_.pack == Pack::kWhole;
  if (samples < 1 && whole) {
    fail_config(
        fmt::format("data file {}: no document to train on has two tokens, one to read and one to predict; "
                    "lower val_fraction, or take a longer file",
                    found));
  }
  if (samples < 1) {
    fail_config(
        fmt::format("data file {}: a window of context = {} needs {} tokens to train on; lower context or "
                    "val_fraction, or take a longer file",
                    found, spec_.context, spec_.context + 1));
  }
  if (spec_.at_least > samples) {
    fail_config(
        fmt::format("data file {}: batch = {} is larger than the data, which holds {} {} of context = {}; "
                    "lower batch or context, or take a longer file",
                    found, spec_.at_least, samples, whole ? "rows" : "windows", spec_.context));
  }
  if ((val_corpus_ || spec_.val_fraction > 0) && val_samples() < 1) {
    fail_config(fmt::format(
        "data file {}: validation needs at least 2 tokens{}; raise val_fraction, or set it to 0 to "
        "train without validation",
        found, whole ? " of a document that begins there" : ""));
  }
}

void Source::check_tokens() {
  if (spec_.vocabulary == 0) spec_.vocabulary = corpus_.vocabulary();
  if (spec_.vocabulary == 0 && !corpus_.is_text()) spec_.vocabulary = spec_.tokenizer;
  if (spec_.vocabulary == 0) spec_.vocabulary = corpus_.is_text() ? 256 : corpus_.tokens().usual_vocabulary();
  corpus_.tokens().check_tokens(spec_.vocabulary);
  if (val_corpus_) val_corpus_->tokens().check_tokens(spec_.vocabulary);
}

Source::Rows Source::pack(const Part& part) const {
  Rows rows;
  const Corpus& corpus = file_of(part);
  const auto documents = corpus.documents();
  const std::int64_t end = part.begin + part.count;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    if (documents[i] < part.begin || documents[i] >= end) continue;
    add_pieces(rows, corpus, documents[i],
               i + 1 < documents.size() ? documents[i + 1] : corpus.tokens().size());
  }
  rows.packing = best_fit(rows.lengths, spec_.context);
  return rows;
}

// The last token of a document is predicted and never read, so a document of one token has no place.
void Source::add_pieces(Rows& rows, const Corpus& corpus, std::int64_t first, std::int64_t end) const {
  const std::int64_t places = end - first - 1;
  if (places > spec_.context && !spec_.split_long) {
    fail_config(fmt::format(
        "{}: pack = \"whole\": the document of '{}' that begins at token {} has {} tokens, and a row of "
        "context = {} holds one of up to {}; raise context, or set long_documents = \"split\"",
        spec_.corpus.owner, corpus.path(), first, end - first, spec_.context, spec_.context + 1));
  }
  for (std::int64_t done = 0; done < places; done += spec_.context) {
    rows.pieces.push_back({first + done, std::min(places - done, spec_.context)});
    rows.lengths.push_back(rows.pieces.back().places);
  }
}

std::int64_t Source::train_begin(std::int64_t sample) const {
  const std::int64_t samples = train_samples(), epoch = sample / samples, index = sample % samples;
  const bool whole = spec_.pack == Pack::kWhole;
  const std::int64_t stride = whole ? 1 : spec_.context;
  const auto step = static_cast<std::uint64_t>(epoch), place = static_cast<std::uint64_t>(index);
  switch (spec_.order) {
    case Order::kRandom:
      return static_cast<std::int64_t>(random_below(
          key_, step, place, static_cast<std::uint64_t>(whole ? samples : train_.count - spec_.context)));
    case Order::kShuffled: {
      const Permutation shuffle(static_cast<std::uint64_t>(samples), key_, step);
      return static_cast<std::int64_t>(shuffle(place)) * stride;
    }
    case Order::kSequential:
      break;
  }
  return index * stride;
}

void Source::fill_window(const Part& part, std::int64_t begin, const SampleFields& out) const {
  const std::int64_t inputs = std::clamp<std::int64_t>(part.count - begin, 0, spec_.context);
  const std::int64_t predicted = std::clamp<std::int64_t>(part.count - begin - 1, 0, spec_.context);
  const TokenFile& file = file_of(part).tokens();
  file.copy(part.begin + begin, inputs, out.tokens);
  file.copy(part.begin + begin + 1, predicted, out.targets);
  std::fill(out.tokens + inputs, out.tokens + spec_.context, 0);
  std::fill(out.targets + predicted, out.targets + spec_.context, -1);
  if (spec_.pack == Pack::kDocuments) mark_documents(part, part.begin + begin, out);
}

// The border after the last token of the part is not among its documents; its target is -1 already.
void Source::mark_documents(const Part& part, std::int64_t begin, const SampleFields& out) const {
  const auto documents = file_of(part).documents();
  auto next = std::upper_bound(documents.begin(), documents.end(), begin);
  const std::int64_t end = part.begin + part.count;
  std::int32_t document = 0, position = 0;
  for (std::int64_t i = 0; i < spec_.context; ++i) {
    const bool border = next != documents.end() && begin + i == *next;
    if (border) ++next;
    if (border || begin + i == end) {
      ++document;
      position = 0;
    }
    out.documents[i] = document;
    out.positions[i] = position++;
    if (next != documents.end() && begin + i + 1 == *next) out.targets[i] = -1;
  }
}

void Source::fill_row(const Part& part, const Rows& rows, std::int64_t row, const SampleFields& out) const {
  const TokenFile& file = file_of(part).tokens();
  std::int64_t at = 0;
  std::int32_t document = 0;
  for (const std::int64_t number : rows.packing.row(row)) {
    const Piece& piece = rows.pieces[static_cast<std::size_t>(number)];
    file.copy(piece.first, piece.places, out.tokens + at);
    file.copy(piece.first + 1, piece.places, out.targets + at);
    std::fill(out.documents + at, out.documents + at + piece.places, document++);
    std::iota(out.positions + at, out.positions + at + piece.places, 0);
    at += piece.places;
  }
  std::fill(out.tokens + at, out.tokens + spec_.context, 0);
  std::fill(out.targets + at, out.targets + spec_.context, -1);
  std::fill(out.documents + at, out.documents + spec_.context, document);
  std::iota(out.positions + at, out.positions + spec_.context, 0);
}

void Source::read_train(std::int64_t sample, const SampleFields& out) const {
  const std::int64_t begin = train_begin(sample);
  spec_.pack == Pack::kWhole ? fill_row(train_, train_rows_, begin, out) : fill_window(train_, begin, out);
}

void Source::read_val(std::int64_t sample, const SampleFields& out) const {
  spec_.pack == Pack::kWhole ? fill_row(val_, val_rows_, sample, out)
                             : fill_window(val_, sample * spec_.context, out);
}

}  // namespace tenon::text
