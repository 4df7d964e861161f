// Reading and checking of recovery_study.hpp.
#include "reproduce/recovery_study.hpp"

#include "reproduce/study_file.hpp"

#include <fmt/format.h>

namespace tenon::reproduce {
namespace {

constexpr OptionSpec kRecoveryOptions[] = {
    option::integer("draws", "1000")
        .between(10, 1000000)
        .doc_text("schedules of failures per arm that are charged without training"),
    option::text("full", "\"\"").doc_text("arm whose overhead is divided by that of the others"),
};

constexpr OptionSpec kRecoveryPairOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("whose metric is taken"),
    option::text("minus", nullptr).mandatory().doc_text("the arm that is subtracted, seed by seed"),
    option::text("title", "\"\"").doc_text("for the table; the names if absent"),
};

constexpr OptionSpec kRecoveryLineOptions[] = {
    option::text("title", nullptr).mandatory().doc_text("for the table and the figure"),
    option::texts("arms", nullptr).mandatory().doc_text("whose losses stand against their lost samples"),
};

}  // namespace

RecoveryStudy read_recovery_study(const Value& table) {
  OptionRequest request{.table = table, .owner = "recovery", .specs = option_list(kRecoveryOptions)};
  request.other_keys = {"pair", "line"};
  const Resolution found = resolve_options(request);
  RecoveryStudy out;
  out.draws = found.options->integer("draws");
  out.full = std::string(found.options->text("full"));
  const Value* pairs = table.find("pair");
  for (std::size_t i = 0; pairs != nullptr && i < pairs->array().size(); ++i) {
    const Resolution one = resolve_options({.table = pairs->array()[i],
                                            .owner = fmt::format("recovery.pair[{}]", i),
                                            .specs = option_list(kRecoveryPairOptions)});
    RecoveryPair pair{std::string(one.options->text("arm")), std::string(one.options->text("minus")),
                      std::string(one.options->text("title"))};
    if (pair.title.empty()) pair.title = fmt::format("{} − {}", pair.arm, pair.minus);
    out.pairs.push_back(std::move(pair));
  }
  const Value* lines = table.find("line");
  for (std::size_t i = 0; lines != nullptr && i < lines->array().size(); ++i) {
    const Resolution one = resolve_options({.table = lines->array()[i],
                                            .owner = fmt::format("recovery.line[{}]", i),
                                            .specs = option_list(kRecoveryLineOptions)});
    out.lines.push_back({std::string(one.options->text("title")), texts_of(*one.options, "arms")});
  }
  return out;
}

void check_recovery_study(const StudyFile& study,
                          const std::function<void(const std::string&, const std::string&)>& say,
                          const std::function<void(const std::string&, const std::string&)>& arm_named) {
  const RecoveryStudy& recovery = *study.recovery;
  if (!recovery.full.empty()) arm_named("recovery.full", recovery.full);
  for (std::size_t i = 0; i < recovery.lines.size(); ++i) {
    const std::vector<std::string>& arms = recovery.lines[i].arms;
    for (std::size_t a = 0; a < arms.size(); ++a)
      arm_named(fmt::format("recovery.line[{}].arms[{}]", i, a), arms[a]);
    if (arms.size() < 3)
      say(fmt::format("recovery.line[{}].arms", i), "a line through fewer than three arms says nothing");
  }
  for (std::size_t i = 0; i < recovery.pairs.size(); ++i) {
    arm_named(fmt::format("recovery.pair[{}].arm", i), recovery.pairs[i].arm);
    arm_named(fmt::format("recovery.pair[{}].minus", i), recovery.pairs[i].minus);
    if (recovery.pairs[i].arm == recovery.pairs[i].minus)
      say(fmt::format("recovery.pair[{}].minus", i), "an arm minus itself is 0; name another");
  }
}

}  // namespace tenon::reproduce
