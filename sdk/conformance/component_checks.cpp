// Checks of components of any kind before they do anything: options, creation, destruction, queries.
#include "subject.hpp"

#include "identities/stated.hpp"

#include <tenon/plugin.hpp>

#include <fmt/format.h>

#include <cmath>

namespace tenon::conformance {
namespace {

/// A component and the options that it keeps views of, of whatever kind.
struct Made {
  std::unique_ptr<ResolvedOptions> options;
  ComponentHandle component;
};

Made make(Subject& subject, const Value& table) {
  Registry& registry = subject.registry();
  Resolution resolved =
      resolve_options(component_request(table, registry.describe(subject.kind(), subject.type()), &registry));
  registry.create_inner(*resolved.options, subject.host());
  Made made;
  made.component = registry.create(subject.kind(), subject.type(), *resolved.options, subject.host());
  made.options = std::move(resolved.options);
  return made;
}

const tenon_component_v1& declared(Subject& subject) {
  return *subject.registry().find(subject.kind(), subject.type()).component;
}

std::vector<const tenon_option_v1*> options_of(Subject& subject) {
  std::vector<const tenon_option_v1*> found;
  for (auto option = declared(subject).options; option != nullptr && *option != nullptr; ++option)
    found.push_back(*option);
  return found;
}

void is_documented(Subject& subject) {
  std::string missing;
  for (const tenon_option_v1* option : options_of(subject)) {
    if (option->doc == nullptr || *option->doc == '\0') missing += std::string(" ") + option->name;
  }
  if (!missing.empty())
    fail("options without a text that says what they mean:" + missing + ". Use doc_text().");
}

void is_made_again(Subject& subject) {
  for (int i = 0; i < 3; ++i) make(subject, subject.given().options);
}

void lives_beside_another(Subject& subject) {
  Made first = make(subject, subject.given().options);
  Made second = make(subject, subject.given().options);
  if (first.component.object() == second.component.object())
    fail("two components are one object: create() must make a new one each time, for a rank is a thread");
  first.component.reset();  // destroyed in the order of creation, not only in reverse
  Made third = make(subject, subject.given().options);
  second.component.reset();
}

void options_round_trip(Subject& subject) {
  Registry& registry = subject.registry();
  const auto request = [&](const Value& table) {
    return component_request(table, registry.describe(subject.kind(), subject.type()), &registry);
  };
  const Resolution first = resolve_options(request(subject.given().options));
  const Config written = Config::parse(to_toml(first.table, false), "written out", {});
  const Resolution second = resolve_options(request(written.root()));
  if (!(first.table == second.table)) {
    fail(fmt::format("options with defaults filled in read back differently: {} became {}",
                     first.table.inline_toml(), second.table.inline_toml()));
  }
  make(subject, written.root());
}

/// Values at the edges of what an option declares.
std::vector<std::string> edges(const tenon_option_v1& option) {
  std::vector<std::string> values;
  for (auto choice = option.choices; choice != nullptr && *choice != nullptr; ++choice) {
    if (option.type == TENON_OPTION_TEXT) values.push_back(Value(std::string(*choice)).inline_toml());
  }
  for (const double bound : {option.min, option.max}) {
    if (!std::isfinite(bound)) continue;
    if (option.type == TENON_OPTION_INT) values.push_back(fmt::format("{:.0f}", bound));
    if (option.type == TENON_OPTION_REAL) values.push_back(Value(bound).inline_toml());
  }
  if (option.type == TENON_OPTION_BOOL) values = {"false", "true"};
  return values;
}

void takes_what_it_declares(Subject& subject) {
  for (const tenon_option_v1* option : options_of(subject)) {
    for (const std::string& value : edges(*option)) {
      Value table = subject.given().options;
      table.set(option->name, parse_value(value, {}), {});
      try {
        make(subject, table);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::kConfig)
          continue;  // two options that contradict each other, correctly refused
        fail(fmt::format(
            "{} = {} is declared as allowed, but making the component failed with: {}. Narrow the range, or "
            "refuse with fail_config.",
            option->name, value, error.what()));
      }
    }
  }
}

void answers_strange_queries(Subject& subject) {
  const Made made = make(subject, subject.given().options);
  for (const char* id : {"tenon.conformance.no_such_interface/1", ""}) {
    if (made.component.query(id) != nullptr) {
      fail(
          fmt::format("query(\"{}\") is not null: answer null to every id that you do not know, for the "
                      "caller casts what "
                      "it gets",
                      id));
    }
  }
}

void states_identities(Subject& subject) {
  Value table = subject.given().options;
  table.set("type", Value(subject.type()), {});
  if (identities::stated_by(subject.registry(), subject.host(), subject.kind(), table).empty())
    not_applicable("it states none (<tenon/identities.hpp>)");
}

constexpr Check kComponentChecks[] = {
    {"component.is_documented", "", "every option says what it means", is_documented},
    {"component.is_made_again", "", "making and destroying can be repeated", is_made_again},
    {"component.lives_beside_another", "", "two live at once and end in any order", lives_beside_another},
    {"component.options_round_trip", "", "options written out with defaults read back as the same",
     options_round_trip},
    {"component.takes_what_it_declares", "",
     "every choice and bound is accepted, or refused as a configuration error", takes_what_it_declares},
    {"component.answers_strange_queries", "", "query is null for unknown interfaces",
     answers_strange_queries},
    {"component.states_identities", "", "identities are TOML with known options and finite bounds",
     states_identities},
};

}  // namespace

std::span<const Check> component_checks() {
  return kComponentChecks;
}

}  // namespace tenon::conformance
