// Reading of study_parts_file.hpp.
#include "reproduce/study_parts_file.hpp"

#include "config/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace tenon::reproduce {
namespace {

constexpr OptionSpec kSimulationOptions[] = {
    option::text("config", nullptr).mandatory().doc_text("of `tenon simulate`, relative to the study"),
    option::texts("set", "[]").doc_text("\"a.b=c\" over it; those of the size come on top"),
    option::texts("sizes", "[]").doc_text("at which data is simulated; empty: at all"),
};

constexpr OptionSpec kOtherDataOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("heads the column"),
    option::text("metric", "\"\"").doc_text("that is measured; the study's if absent"),
    option::texts("set", "[]").doc_text("\"a.b=c\" over the configuration of the run"),
    option::texts("arms", "[]").doc_text("that are measured; empty: all"),
    option::texts("sizes", "[]").doc_text("at which they are measured; empty: at all"),
};

constexpr OptionSpec kAgreeOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("that is compared"),
    option::text("with", nullptr).mandatory().doc_text("the arm whose values are the measure"),
    option::text("metric", "\"train/loss\"").doc_text("that is compared, after every update"),
    option::integer("updates", "10").at_least(1).doc_text("that are compared, from the first one on"),
};

std::vector<std::string> listed(const Options& options, std::string_view name) {
  const auto texts = options.texts(name);
  return {texts.begin(), texts.end()};
}

std::string word(const Options& options, std::string_view name) {
  return std::string(options.text(name));
}

Resolution part(const Value& table, const std::string& owner, std::span<const OptionSpec> specs) {
  return resolve_options({.table = table, .owner = owner, .specs = option_list(specs)});
}

template <typename Read>
void each(const Value& root, const char* name, Read&& read) {
  const Value* list = root.find(name);
  for (std::size_t i = 0; list != nullptr && i < list->array().size(); ++i)
    read(list->array()[i], fmt::format("{}[{}]", name, i));
}

}  // namespace

bool says(const std::vector<std::string>& list, const std::string& name) {
  return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
}

std::vector<std::string> study_part_names() {
  return {"simulate", "evaluate", "agree"};
}

void read_study_parts(const Value& root, StudyFile& study) {
  if (const Value* table = root.find("simulate")) {
    const Resolution found = part(*table, "simulate", kSimulationOptions);
    const auto config = std::filesystem::path(study.path).parent_path() / found.options->text("config");
    study.simulation = {std::filesystem::absolute(config).lexically_normal().string(),
                        listed(*found.options, "set"), listed(*found.options, "sizes")};
  }
  each(root, "evaluate", [&](const Value& table, const std::string& owner) {
    const Resolution found = part(table, owner, kOtherDataOptions);
    const Options& options = *found.options;
    const std::string metric = word(options, "metric");
    study.evaluations.push_back({word(options, "name"), metric.empty() ? study.metric : metric,
                                 listed(options, "set"), listed(options, "arms"), listed(options, "sizes")});
  });
  each(root, "agree", [&](const Value& table, const std::string& owner) {
    const Resolution found = part(table, owner, kAgreeOptions);
    const Options& options = *found.options;
    study.agreements.push_back(
        {word(options, "arm"), word(options, "with"), word(options, "metric"), options.integer("updates")});
  });
}

void check_study_parts(const StudyFile& study,
                       const std::function<void(const std::string&, const std::string&)>& say,
                       const std::function<void(const std::string&, const std::string&)>& arm_named) {
  std::vector<std::string> there;
  for (const Size& size : study.sizes) there.push_back(size.name);
  const auto sizes_named = [&](const std::string& table, const std::vector<std::string>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (study.size(sizes[i]) != nullptr) continue;
      say(fmt::format("{}.sizes[{}]", table, i),
          fmt::format("the study has no size '{}'{}", sizes[i], config::suggestion(sizes[i], there)));
    }
  };
  if (study.simulation) sizes_named("simulate", study.simulation->sizes);
  for (const Size& size : study.sizes) {
    if (size.simulate.empty() || (study.simulation && says(study.simulation->sizes, size.name))) continue;
    say(fmt::format("size.{}.simulate", size.name), "nothing is simulated at this size without [simulate]");
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < study.evaluations.size(); ++i) {
    const OtherData& other = study.evaluations[i];
    const std::string table = fmt::format("evaluate[{}]", i);
    if (!names.insert(other.name).second)
      say(table + ".name", fmt::format("two columns are called '{}'", other.name));
    for (std::size_t a = 0; a < other.arms.size(); ++a)
      arm_named(fmt::format("{}.arms[{}]", table, a), other.arms[a]);
    sizes_named(table, other.sizes);
  }
  for (std::size_t i = 0; i < study.agreements.size(); ++i) {
    const AgreeingPair& pair = study.agreements[i];
    const std::string table = fmt::format("agree[{}]", i);
    arm_named(table + ".arm", pair.arm);
    arm_named(table + ".with", pair.with);
    if (pair.arm == pair.with) say(table + ".with", "an arm agrees with itself; name another");
  }
}

}  // namespace tenon::reproduce
