// Reading of time_to_file.hpp.
#include "reproduce/time_to_file.hpp"

#include "reproduce/study_file.hpp"

#include <tenon/config.hpp>

#include <fmt/format.h>

#include <set>

namespace tenon::reproduce {
namespace {

constexpr OptionSpec kTimeToOptions[] = {
    option::real("budget", "1")
        .between(0.01, 1)
        .doc_text("share of the baseline's slots at which its value is the threshold; 1 is its last value"),
    option::real("looser", "0.02")
        .between(0, 10)
        .doc_text("share of the baseline's last value by which a second threshold is easier"),
    option::texts("timing_set", "[]").doc_text("\"a.b=c\", for the runs that only time: a tiny batch"),
    option::texts("one_seed", "[]").doc_text("arms whose slots take the same time whatever the seed"),
};

constexpr OptionSpec kLinkOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("names the link and its folder"),
    option::texts("set", "[]").doc_text("\"transport.link={...}\" and what else makes the link"),
};

/// Keys that determine the number of slots and their messages: a timing run must not change them.
constexpr const char* kTimed[] = {"run.", "sync", "parallel", "transport", "schedule"};

bool begins_with_any(const std::string& text, std::span<const char* const> beginnings) {
  for (const char* beginning : beginnings)
    if (text.starts_with(beginning)) return true;
  return false;
}

}  // namespace

TimeTo read_time_to(const Value& table) {
  OptionRequest request{.table = table, .owner = "time_to", .specs = option_list(kTimeToOptions)};
  request.other_keys.push_back("link");
  const Resolution found = resolve_options(request);
  TimeTo out;
  out.budget = found.options->real("budget");
  out.looser = found.options->real("looser");
  out.timing_set = texts_of(*found.options, "timing_set");
  out.one_seed = texts_of(*found.options, "one_seed");
  const Value* links = table.find("link");
  for (std::size_t i = 0; links != nullptr && i < links->array().size(); ++i) {
    const Resolution link = resolve_options({.table = links->array()[i],
                                             .owner = fmt::format("time_to.link[{}]", i),
                                             .specs = option_list(kLinkOptions)});
    out.links.push_back({std::string(link.options->text("name")), texts_of(*link.options, "set")});
  }
  return out;
}

void check_time_to(const StudyFile& study,
                   const std::function<void(const std::string&, const std::string&)>& say,
                   const std::function<void(const std::string&, const std::string&)>& arm_named) {
  const TimeTo& t = *study.time_to;
  std::set<std::string> names;
  for (std::size_t i = 0; i < t.links.size(); ++i) {
    const std::string key = fmt::format("time_to.link[{}]", i), &name = t.links[i].name;
    if (!ab::usable_as_folder(name))
      say(key + ".name",
          fmt::format("'{}' cannot name a folder; use letters, digits, '.', '_' and '-'", name));
    if (!names.insert(name).second) say(key + ".name", fmt::format("two links are called '{}'", name));
    for (std::size_t s = 0; s < t.links[i].set.size(); ++s) {
      if (t.links[i].set[s].starts_with("transport")) continue;
      say(fmt::format("{}.set[{}]", key, s),
          fmt::format("'{}' is no setting of [transport]; anything else belongs to an arm or a size",
                      t.links[i].set[s]));
    }
  }
  for (std::size_t i = 0; i < t.timing_set.size(); ++i) {
    if (!begins_with_any(t.timing_set[i], kTimed)) continue;
    say(fmt::format("time_to.timing_set[{}]", i),
        fmt::format("'{}' changes what is timed; a timing run differs in its data alone", t.timing_set[i]));
  }
  if (t.links.empty() && !t.timing_set.empty())
    say("time_to.timing_set", "nothing is timed without [[time_to.link]]");
  for (std::size_t i = 0; i < t.one_seed.size(); ++i)
    arm_named(fmt::format("time_to.one_seed[{}]", i), t.one_seed[i]);
}

}  // namespace tenon::reproduce
