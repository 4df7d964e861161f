// Reading and checks of factor_rule.hpp.
#include "ab/factor_rule.hpp"

#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace tenon::ab {
namespace {

constexpr std::size_t kLongestCellName = 64;  // as the name of any arm

constexpr OptionSpec kFactorOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("names the factor, and a part of its arms' folders"),
};

constexpr OptionSpec kLevelOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("names the level, and a part of its arms' folders"),
};

/// A leaf of a level's `set`, and where it is written.
struct Setting {
  std::string key;
  std::string word;
  Origin origin;
};

[[noreturn]] void refuse(const Origin& origin, const std::string& text) {
  fail_config(fmt::format("{}: {}", origin.text(), text));
}

/// { "a.b" = 1, c = { d = 2 } } as a.b=1 and c.d=2: a quoted key is dotted, as on the command line.
void flatten_settings(const Value& table, const std::string& before, std::vector<Setting>& out) {
  for (const Member& member : table.table()) {
    const std::string key = before.empty() ? member.key : join_key(before, member.key);
    if (member.value.is_table() && !member.value.table().empty()) {
      flatten_settings(member.value, key, out);
    } else {
      out.push_back({key, key + "=" + member.value.inline_toml(), member.origin});
    }
  }
}

void check_name(const Value& table, const char* what, const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (!name.empty() && name[0] != '.' && name[0] != '-' && std::all_of(name.begin(), name.end(), plain))
    return;
  const Value* written = table.find("name");
  refuse(
      written == nullptr ? table.origin : written->origin,
      fmt::format("the {} name '{}' cannot be a part of a folder's name; use letters, digits, '.', '_' and "
                  "'-', not starting with '.' or '-'",
                  what, name));
}

FactorLevel read_level(const Value& table, const std::string& owner, std::vector<Setting>& settings) {
  OptionRequest request{
      .table = table, .owner = owner, .specs = option_list(kLevelOptions), .other_keys = {"set"}};
  FactorLevel level;
  level.name = resolve_options(request).options->text("name");
  check_name(table, "level", level.name);
  if (const Value* set = table.find("set")) {
    if (!set->is_table()) {
      refuse(set->origin,
             fmt::format("set of level '{}' is {}; expected a table: set = {{ \"optimizer.lr\" = 1e-3 }}",
                         level.name, set->description()));
    }
    flatten_settings(*set, "", settings);
  }
  for (const Setting& setting : settings) level.set.push_back(setting.word);
  return level;
}

std::string without_plus(std::string key) {
  key.erase(std::remove(key.begin(), key.end(), '+'), key.end());
  return key;
}

/// Whether both write the same value: the same key, or a table and a key inside it.
bool overlap(const std::string& a, const std::string& b) {
  const std::string& shorter = a.size() <= b.size() ? a : b;
  const std::string& longer = a.size() <= b.size() ? b : a;
  return longer.starts_with(shorter) && (longer.size() == shorter.size() || longer[shorter.size()] == '.');
}

/// Keys of the factors that were read, by key.
class SettingOwners {
 public:
  void claim(const std::string& factor, const std::vector<Setting>& settings) {
    for (const Setting& setting : settings) {
      const std::string key = without_plus(setting.key);
      for (const auto& [other, owner] : owners_) {
        if (owner.factor == factor || !overlap(key, other)) continue;
        refuse(
            setting.origin,
            fmt::format("factor '{}' sets {}, which factor '{}' sets, too ({}): a cell can have only one of "
                        "the values. Let one factor have the key, or make one factor of both, with a level "
                        "for each combination",
                        factor, setting.key, owner.factor, owner.origin.text()));
      }
      owners_.insert({key, {factor, setting.origin}});
    }
  }

 private:
  struct Owner {
    std::string factor;
    Origin origin;
  };
  std::map<std::string, Owner> owners_;
};

Factor read_factor(const Value& table, std::size_t index, SettingOwners& owners) {
  OptionRequest request{.table = table,
                        .owner = fmt::format("factor[{}]", index),
                        .specs = option_list(kFactorOptions),
                        .other_keys = {"levels"}};
  Factor factor;
  factor.name = resolve_options(request).options->text("name");
  check_name(table, "factor", factor.name);
  const Value* levels = table.find("levels");
  if (levels == nullptr || !levels->is_array() || levels->array().size() < 2) {
    refuse(levels == nullptr ? table.origin : levels->origin,
           fmt::format("factor '{}' has {}; a factor needs at least two: levels = [{{ name = \"off\" }}, "
                       "{{ name = \"on\", set = {{ \"a.b\" = 1 }} }}], the baseline first",
                       factor.name,
                       levels == nullptr         ? std::string("no levels")
                       : !levels->is_array()     ? "as levels " + levels->description()
                       : levels->array().empty() ? std::string("no level")
                                                 : std::string("one level")));
  }
  std::map<std::vector<std::string>, std::string> seen;
  for (std::size_t l = 0; l < levels->array().size(); ++l) {
    const Value& written = levels->array()[l];
    std::vector<Setting> settings;
    factor.levels.push_back(read_level(written, fmt::format("factor[{}].levels[{}]", index, l), settings));
    const FactorLevel& level = factor.levels.back();
    owners.claim(factor.name, settings);
    const auto same_name = [&](const FactorLevel& other) { return other.name == level.name; };
    if (std::count_if(factor.levels.begin(), factor.levels.end(), same_name) > 1)
      refuse(written.origin, fmt::format("factor '{}' has two levels called '{}'", factor.name, level.name));
    std::vector<std::string> words = level.set;
    std::sort(words.begin(), words.end());
    const auto [earlier, is_new] = seen.insert({words, level.name});
    if (!is_new) {
      refuse(written.origin,
             fmt::format("levels '{}' and '{}' of factor '{}' set the same values, so nothing tells them "
                         "apart; change one of them or leave it out",
                         earlier->second, level.name, factor.name));
    }
  }
  return factor;
}

/// Keys that have no place beside factors.
void refuse_other_designs(const Value& root) {
  if (const Member* arms = root.find_member("arm")) {
    const Value& value = arms->value;
    refuse(value.is_array() && !value.array().empty() ? value.array().front().origin : value.origin,
           "[[arm]] stands beside [[factor]], whose cells are the arms; leave one of them out");
  }
  if (const Value* sequential = root.find("sequential")) {
    refuse(sequential->origin,
           "[sequential] looks at one difference after every pair, and a factorial study has many contrasts, "
           "tested once; leave [sequential] out and list the seeds, or compare two [[arm]]");
  }
  if (const Value* tune = root.find("tune")) {
    refuse(tune->origin,
           "[tune] would give cells settings that no factor names, and the effects would mix with them; tune "
           "the "
           "base beforehand, in an experiment of its own with [[arm]], and write the choice into the base");
  }
  const Value* by = root.find("decide_by");
  if (by != nullptr && by->is_text() && by->text() == "time_to_target") {
    refuse(
        by->origin,
        "decide_by = \"time_to_target\" has no contrasts of cells: a run that never gets there has no time. "
        "Leave it out, and final values decide");
  }
}

void check_cells(const Value& written, std::span<const Factor> factors) {
  if (factors.size() < 2) {
    refuse(written.origin,
           fmt::format("one factor has no interaction; write its levels as [[arm]] tables, or add a second "
                       "[[factor]]"));
  }
  std::string product;
  std::set<std::string> names;
  for (std::size_t f = 0; f < factors.size(); ++f) {
    product += fmt::format("{}{}", f == 0 ? "" : " x ", factors[f].levels.size());
    if (!names.insert(factors[f].name).second)
      refuse(written.array()[f].origin, fmt::format("two factors are called '{}'", factors[f].name));
  }
  const std::size_t cells = cell_count(factors);
  if (cells > kMostCells) {
    refuse(written.origin,
           fmt::format("the factors have {} = {} cells, each with a run for every seed; at most "
                       "{}. Leave out levels or factors, or ask with two experiments",
                       product, cells, kMostCells));
  }
  for (std::size_t cell = 0; cell < cells; ++cell) {
    const std::string name = cell_name(factors, cell);
    if (name.size() <= kLongestCellName) continue;
    refuse(
        written.origin,
        fmt::format("the arm '{}' has a name of {} characters, made of the names of its levels; at most {}. "
                    "Shorten the names of factors or levels",
                    name, name.size(), kLongestCellName));
  }
}

}  // namespace

std::size_t cell_count(std::span<const Factor> factors) {
  std::size_t out = 1;
  for (const Factor& factor : factors) {
    out *= factor.levels.size();
    if (out > 1'000'000) return out;  // far too many, and the product may not wrap
  }
  return out;
}

std::vector<std::size_t> levels_of_cell(std::span<const Factor> factors, std::size_t cell) {
  std::vector<std::size_t> out(factors.size());
  for (std::size_t f = factors.size(); f-- > 0;) {
    out[f] = cell % factors[f].levels.size();
    cell /= factors[f].levels.size();
  }
  return out;
}

std::size_t cell_of_levels(std::span<const Factor> factors, std::span<const std::size_t> levels) {
  std::size_t out = 0;
  for (std::size_t f = 0; f < factors.size(); ++f) out = out * factors[f].levels.size() + levels[f];
  return out;
}

std::string cell_name(std::span<const Factor> factors, std::size_t cell) {
  const std::vector<std::size_t> levels = levels_of_cell(factors, cell);
  std::string out;
  for (std::size_t f = 0; f < factors.size(); ++f)
    out += fmt::format("{}{}-{}", f == 0 ? "" : "_", factors[f].name, factors[f].levels[levels[f]].name);
  return out;
}

std::vector<std::string> cell_sets(std::span<const Factor> factors, std::size_t cell) {
  const std::vector<std::size_t> levels = levels_of_cell(factors, cell);
  std::vector<std::string> out;
  for (std::size_t f = 0; f < factors.size(); ++f) {
    const std::vector<std::string>& set = factors[f].levels[levels[f]].set;
    out.insert(out.end(), set.begin(), set.end());
  }
  return out;
}

std::vector<Factor> read_factors(const Value& root) {
  const Value* written = root.find("factor");
  if (written == nullptr) return {};
  if (!written->is_array())
    refuse(written->origin,
           fmt::format("factors are written as [[factor]] tables, found {}", written->description()));
  refuse_other_designs(root);
  std::vector<Factor> out;
  SettingOwners owners;
  for (std::size_t f = 0; f < written->array().size(); ++f)
    out.push_back(read_factor(written->array()[f], f, owners));
  check_cells(*written, out);
  return out;
}

std::vector<config::TableSpecs> factor_tables() {
  return {{"factor", kFactorOptions, true},
          {"factor.levels", kLevelOptions, true},
          {.path = "factor.levels.set", .open = true}};
}

}  // namespace tenon::ab
