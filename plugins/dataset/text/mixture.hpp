// Data set `mixture` (contract dataset/1): samples of several text sources, each with a fixed share of the
// samples at every moment and its own order through its own epochs. Fields as in `text`.
#pragma once

#include "source.hpp"
#include "text.hpp"

#include <tenon/plugin.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

// Selects the source of each draw of a mixture by the earliest-deadline rule of fair scheduling. Among the
// sources k with floor(c_k S / a_k) + 1 <= s (draw s = 1, 2, ..., c_k draws so far, share a_k / S) it selects
// the one with the smallest deadline ceil((c_k + 1) S / a_k), ties by position. After any s draws every count
// is within one draw of s a_k / S (Baruah et al., "Proportionate progress", Algorithmica 15, 1996).

/// Shares as integers a_k over one S.
struct Shares {
  std::vector<std::int64_t> parts;
  std::int64_t whole = 1;
};

/// Parses decimal numbers ("0.25") or fractions ("1/3") exactly. Throws Error(kConfig) when a text is
/// neither, when the sum is not exactly 1, or when the common denominator is above 2^20. `where` opens the
/// messages.
Shares parse_shares(std::span<const std::string> texts, const std::string& where);

class ShareSchedule {
 public:
  explicit ShareSchedule(const Shares& shares);

  struct Draw {
    int source = 0;
    std::int64_t count = 0;  ///< draws of this source before this one
  };
  /// draw >= 0. Constant time: the rule repeats after `whole` draws.
  Draw at(std::int64_t draw) const noexcept;
  /// Returns the draws of `source` among the first `draws`.
  std::int64_t count(int source, std::int64_t draws) const noexcept;

 private:
  struct Entry {
    std::int32_t source;
    std::int32_t count;
  };
  Shares shares_;
  std::vector<Entry> period_;
};

class Mixture final : public WindowDataset {
 public:
  static constexpr auto kOrders = option::choice<Order>(
      {{"shuffled", Order::kShuffled}, {"random", Order::kRandom}, {"sequential", Order::kSequential}});
  static constexpr OptionSpec kOptions[] = {
      option::named_paths("sources", nullptr)
          .mandatory()
          .doc_text("files of text or tokens: \"name=file\" each"),
      option::texts("weights", nullptr)
          .mandatory()
          .doc_text("share of the samples of each source, e.g. \"0.25\" or \"1/3\"; one row after another "
                    "for phases; "
                    "each row sums to exactly 1"),
      option::integers("phase_until", "[]")
          .doc_text("samples (of all ranks) after which each phase but the last ends, ascending"),
      option::integers("max_epochs", "[]")
          .doc_text("largest number of epochs over each source; 0 = no limit; empty = no limits"),
      option::text("format", "\"auto\"").one_of(kFormats).doc_text("of all files, as in dataset.text"),
      kContextOption,
      kBatchOption,
      option::real("val_fraction", "0.1")
          .between(0, 0.9)
          .doc_text("share of the tokens of each source, at its end, that is held out for validation"),
      kTrainFractionOption,
      option::text("order", "\"shuffled\"").one_of(kOrders).doc_text("within a source, as in dataset.text"),
      option::integer("vocabulary", "0")
          .between(0, 2147483647)
          .doc_text(
              "number of token values; 0 = the tokenizer's, else by format, the largest of the sources"),
      kTokenizerOption,
      kTokenBytesOption,
      kPackOption,
      kLongOption,
      kLineOption,
      kByteOption,
      kKeyOption,
      kBadShareOption,
      kCacheOption,
  };
  static constexpr ComponentInfo kInfo{
      .id = "mixture",
      .summary = "several text sources by weight, with exact shares at every moment",
      .options = kOptions};

  Mixture(const Options& options, Host& host);
  void open(std::uint64_t seed_order) override;

 private:
  struct Named {
    std::string name, path;
  };
  /// From `first`, in samples of all ranks, until the next phase.
  struct Phase {
    std::int64_t first = 0;
    ShareSchedule schedule;
    std::vector<std::int64_t> drawn;  ///< of each source before this phase
  };

  void read_sources(const Options& options);
  void read_phases(const Options& options);
  void copy(Split split, std::int64_t sample, const SampleFields& out) const override;
  bool is_text() const override { return !sources_.empty() && sources_.front().is_text(); }

  std::vector<Named> named_;
  std::vector<Phase> phases_;
  std::vector<std::int64_t> max_epochs_;
  std::vector<Source> sources_;
  std::vector<std::int64_t> val_begin_;  ///< first validation sample of each source
};

}  // namespace tenon::text
