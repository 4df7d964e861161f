// Reading, measuring and printing of decoding.hpp.
#include "reproduce/decoding.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"
#include "reproduce/render.hpp"
#include "reproduce/results.hpp"
#include "reproduce/study_kind.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::reproduce {
namespace {

constexpr OptionSpec kDecodeOptions[] = {
    option::integers("contexts", nullptr).mandatory().doc_text("lengths of the sequence, ascending"),
    option::texts("arms", "[]").doc_text("that are measured; empty: all"),
    option::texts("sizes", "[]").doc_text("at which they are measured; empty: at all"),
    option::integer("tokens", "32").between(2, 4096).doc_text("that are drawn; their median time is taken"),
};

const Decoding* find(const StudyResult& r, const std::string& arm, std::int64_t context) {
  const auto found = std::find_if(r.decodings.begin(), r.decodings.end(),
                                  [&](const Decoding& d) { return d.arm == arm && d.context == context; });
  return found == r.decodings.end() ? nullptr : &*found;
}

template <typename Cell>
std::string table(const StudyResult& r, const char* what, Cell&& cell_of) {
  std::vector<std::string> names{what};
  for (const std::int64_t context : r.study.decode->contexts)
    names.push_back(count(static_cast<double>(context)));
  std::string out = head(names);
  for (const StudyArm& arm : r.study.arms) {
    if (std::none_of(r.decodings.begin(), r.decodings.end(),
                     [&](const Decoding& d) { return d.arm == arm.arm.name; }))
      continue;
    std::vector<std::string> cells{arm.arm.name};
    for (const std::int64_t context : r.study.decode->contexts) {
      const Decoding* d = find(r, arm.arm.name, context);
      cells.push_back(d == nullptr ? std::string(kNoValue) : cell_of(*d));
    }
    out += row(cells);
  }
  return out;
}

}  // namespace

std::vector<config::TableSpecs> decode_tables() {
  return {{"decode", kDecodeOptions}};
}

std::optional<DecodeTable> read_decode(const Value& root) {
  const Value* given = root.find("decode");
  if (given == nullptr) return std::nullopt;
  const Resolution found =
      resolve_options({.table = *given, .owner = "decode", .specs = option_list(kDecodeOptions)});
  return DecodeTable{integers_of(*found.options, "contexts"), texts_of(*found.options, "arms"),
                     texts_of(*found.options, "sizes"), found.options->integer("tokens")};
}

void check_decode(const StudyFile& study, Problems& problems) {
  if (!study.decode) return;
  const DecodeTable& decode = *study.decode;
  for (std::size_t i = 0; i < decode.contexts.size(); ++i) {
    const bool ascends = i == 0 || decode.contexts[i] > decode.contexts[i - 1];
    if (ascends && decode.contexts[i] > decode.tokens) continue;
    problems.say(fmt::format("decode.contexts[{}]", i),
                 fmt::format("{}: expected lengths that ascend, each above the {} tokens that are drawn",
                             decode.contexts[i], decode.tokens));
  }
  if (decode.contexts.empty()) problems.say("decode.contexts", "name at least one length, e.g. [512, 4096]");
  for (std::size_t i = 0; i < decode.arms.size(); ++i)
    problems.arm_named(fmt::format("decode.arms[{}]", i), decode.arms[i]);
}

void read_decodings(StudyResult& result, const DecodeMeasure& measure) {
  const std::optional<DecodeTable>& decode = result.study.decode;
  if (!decode || !says(decode->sizes, result.size.name)) return;
  for (std::size_t a = 0; a < result.arms.size(); ++a) {
    const std::string& arm = result.study.arms[a].arm.name;
    if (!says(decode->arms, arm) || result.arms[a].runs.empty()) continue;
    const RunResult& run = result.arms[a].runs.front();
    if (run.status != "completed" || !run.record) continue;
    for (const std::int64_t context : decode->contexts) {
      try {
        result.decodings.push_back(measure(run.record->folder, context, decode->tokens));
        result.decodings.back().arm = arm;
      } catch (const Error& error) {
        result.complete = false;
        result.warnings.push_back(
            fmt::format("{}, seed {}, decoding at {}: {}", arm, run.seed, context, error.what()));
      }
    }
  }
}

std::string decoding_markdown(const StudyResult& r) {
  if (r.decodings.empty()) return "";
  std::string out = "\n## Decoding\n\n";
  out += table(r, "ms per token at a length of",
               [](const Decoding& d) { return ab::fixed(1000 * d.token_s, 3); });
  if (find(r, r.study.baseline, r.study.decode->contexts.front()) != nullptr) {
    out +=
        "\n" + table(r, fmt::format("tokens/s over {}'s", r.study.baseline).c_str(), [&](const Decoding& d) {
          const Decoding* base = find(r, r.study.baseline, d.context);
          return base == nullptr ? std::string(kNoValue) : ab::fixed(base->token_s / d.token_s, 2);
        });
  }
  out += "\n" + table(r, "bytes kept of a sequence of",
                      [](const Decoding& d) { return count(static_cast<double>(d.kept_bytes)); });
  return out + fmt::format(
                   "\nMeasured on the first seed's run: one sequence, the median of {} tokens at its end; "
                   "bytes are those of keys, values and states on the device.\n",
                   r.study.decode->tokens);
}

void decoding_json(JsonWriter& json, const StudyResult& r) {
  json.objects("decoding", r.decodings, [&](const Decoding& d) {
    json.member("arm", d.arm);
    json.member("context", d.context);
    json.member("token_s", d.token_s);
    json.member("kept_bytes", d.kept_bytes);
    json.member("weight_bytes", d.weight_bytes);
  });
}

}  // namespace tenon::reproduce
