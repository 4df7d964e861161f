// One text or token file as samples of `context` tokens: the training part, its order, and the held-out part.
// With C = context and a part of T tokens, a window that begins at b reads tokens b .. b+C-1 and predicts
// b+1 .. b+C. A row of whole documents reads all tokens of each but its last one, and predicts all but its
// first one.
#pragma once

#include "corpus.hpp"
#include "packing.hpp"

#include <tenon/dataset.hpp>
#include <tenon/host.hpp>
#include <tenon/random.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Order of the train samples. Pure in (key, epoch, index).
enum class Order {
  kRandom,      ///< drawn anew for every sample, with replacement: windows begin anywhere
  kShuffled,    ///< every non-overlapping window, or row, once per epoch, in another order each time
  kSequential,  ///< non-overlapping windows in file order, or rows by their first documents
};

/// How tokens become samples.
enum class Pack {
  kStream,     ///< windows, as if the file were one document
  kDocuments,  ///< the same windows, with the documents and the positions in them
  kWhole,      ///< rows of whole documents, filled up with padding
};

/// Where a sample is written to: `context` numbers each. Without documents and positions for kStream.
struct SampleFields {
  std::int32_t* tokens = nullptr;
  std::int32_t* targets = nullptr;    ///< -1: no loss counts it
  std::int32_t* documents = nullptr;  ///< from 0 in each sample; padding is the last one
  std::int32_t* positions = nullptr;  ///< from 0 in each document, or in what the sample has of it
};

struct SourceSpec {
  std::string path, val_path;  ///< val_path empty: a tail of `path` is held out
  CorpusSpec corpus;
  std::int64_t context = 1;
  std::int64_t at_least = 1;    ///< training samples that the batch needs
  std::int64_t vocabulary = 0;  ///< 0 = of the tokenizer, else by format
  std::int64_t tokenizer = 0;   ///< tokens of the tokenizer that wrote files of tokens; 0 = not known
  double val_fraction = 0;
  double train_fraction = 1;  ///< of what is left, from its beginning
  Order order = Order::kRandom;
  Pack pack = Pack::kStream;
  bool split_long = false;  ///< kWhole: documents that are longer than a row are split, not refused
};

class Source {
 public:
  /// Opens and checks the files; throws Error(kConfig).
  Source(const SourceSpec& spec, RandomKey key, Host& host);

  std::int64_t train_samples() const;
  std::int64_t val_samples() const;
  std::int64_t vocabulary() const { return spec_.vocabulary; }
  std::string_view format() const { return corpus_.format(); }
  bool is_text() const { return corpus_.is_text(); }
  /// Share of the places of all train rows that hold no document; 0 but for kWhole.
  double padding() const { return train_rows_.packing.padding(); }
  /// Files with their checksums.
  std::vector<DataSource> files() const;

  /// sample >= 0 counts through all epochs; targets are the tokens one place later. Allocates nothing.
  void read_train(std::int64_t sample, const SampleFields& out) const;
  /// Validation covers the whole held-out part. Windows: window i begins at i*C, so every token but the first
  /// (kDocuments: of each document) is predicted exactly once, and the last window is padded with targets -1.
  void read_val(std::int64_t sample, const SampleFields& out) const;

 private:
  /// A contiguous range of tokens of one file.
  struct Part {
    bool of_val_file = false;
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };
  /// A document, or a part of one that was split: `places` tokens to read from `first`, predicting as many.
  struct Piece {
    std::int64_t first = 0;
    std::int64_t places = 0;
  };
  struct Rows {
    std::vector<Piece> pieces;
    std::vector<std::int64_t> lengths;  ///< places of the pieces
    Packing packing;
  };

  const Corpus& file_of(const Part& part) const { return part.of_val_file ? *val_corpus_ : corpus_; }
  void require_documents(const Corpus& corpus) const;
  void split();
  void check_sizes() const;
  void check_tokens();
  Rows pack(const Part& part) const;
  void add_pieces(Rows& rows, const Corpus& corpus, std::int64_t first, std::int64_t end) const;
  std::int64_t train_begin(std::int64_t sample) const;
  void fill_window(const Part& part, std::int64_t begin, const SampleFields& out) const;
  void mark_documents(const Part& part, std::int64_t begin, const SampleFields& out) const;
  void fill_row(const Part& part, const Rows& rows, std::int64_t row, const SampleFields& out) const;

  SourceSpec spec_;
  RandomKey key_;
  Corpus corpus_;
  std::optional<Corpus> val_corpus_;
  Part train_, val_;
  Rows train_rows_, val_rows_;  ///< of kWhole
};

}  // namespace tenon::text
