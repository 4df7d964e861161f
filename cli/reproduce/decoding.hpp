// The table [decode] of a study: time per token and bytes kept of a sequence against its length, measured on
// the first seed's run of each arm after all runs.
#pragma once

#include "config/run_schema.hpp"

#include <tenon/config.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

class Problems;
struct StudyFile;
struct StudyResult;

struct DecodeTable {
  std::vector<std::int64_t> contexts;  ///< ascending
  std::vector<std::string> arms;       ///< that are measured; empty = all
  std::vector<std::string> sizes;      ///< at which they are; empty = all
  std::int64_t tokens = 0;             ///< of which the median time is taken
};

/// What one run has at one context.
struct Decoding {
  std::string arm;
  std::int64_t context = 0;
  double token_s = 0;             ///< median
  std::int64_t kept_bytes = 0;    ///< of one sequence: keys, values and states
  std::int64_t weight_bytes = 0;  ///< of the language model
};

/// Measures a run at a context, over so many tokens. Throws Error.
using DecodeMeasure =
    std::function<Decoding(const std::string& run, std::int64_t context, std::int64_t tokens)>;

std::vector<config::TableSpecs> decode_tables();
std::optional<DecodeTable> read_decode(const Value& root);
void check_decode(const StudyFile& study, Problems& problems);

/// Fills StudyResult::decodings. What cannot be measured is a warning, and the study is not complete.
void read_decodings(StudyResult& result, const DecodeMeasure& measure);

/// The section "Decoding"; "" without one.
std::string decoding_markdown(const StudyResult& result);
void decoding_json(JsonWriter& json, const StudyResult& result);

}  // namespace tenon::reproduce
