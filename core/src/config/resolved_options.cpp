// ResolvedOptions: what a component reads. Asking for something undeclared or of another type is the author's
// mistake and says so with both sides.
#include <tenon/config.hpp>

#include <fmt/format.h>

#include <algorithm>

TENON_ABI_BEGIN
namespace {

constexpr const char* kTypeNames[] = {"boolean",  "integer", "real",  "text",      "path",
                                      "integers", "reals",   "texts", "component", "sections"};

}  // namespace

struct ResolvedOptions::Entry {
  std::string name;
  tenon_option_type type;
  bool present = false;
  Datum datum;
  std::vector<std::string_view> views;  // into datum or sections, for texts() and section_names()
  InnerComponent inner;
  std::vector<Section> sections;
  Origin origin;
};

namespace {

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_value(char c) {
  return (c >= '0' && c <= '9') || c == '=' || c == '-' || c == '[' || c == '"';
}

/// Where `text` names the option `name`, npos if nowhere. `marked`: in quotes, or after a dot as part of a
/// key; else with its value after it ("width 16", "width = 16", `site "h.*"`), because an option's name may
/// be any word.
std::size_t named_at(std::string_view text, std::string_view name, bool marked) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const char before = at > 0 ? text[at - 1] : ' ';
    const std::string_view rest = text.substr(at + name.size());
    const char after = rest.empty() ? ' ' : rest.front();
    if (in_word(before) || in_word(after) || before == '/' || after == '/') continue;  // of a path
    if (marked ? before == '\'' || before == '`' || before == '.'
               : after == ':' || after == '=' || (rest.size() > 1 && after == ' ' && is_value(rest[1])))
      return at;
  }
  return std::string_view::npos;
}

bool is_written(const Origin& origin) {
  return !origin.file.empty() && origin.file != "default";
}

}  // namespace

ResolvedOptions::ResolvedOptions(std::string owner) : owner_(std::move(owner)) {}
// Later options may refer to earlier inner components, so destruction runs backwards.
ResolvedOptions::~ResolvedOptions() {
  while (!entries_.empty()) entries_.pop_back();
}

const ResolvedOptions::Entry* ResolvedOptions::look_up(std::string_view name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const auto& item) { return item->name == name; });
  if (found == entries_.end())
    fail_plugin(fmt::format("{} asks for option '{}', which it does not declare", owner_, name));
  return found->get();
}

const ResolvedOptions::Entry& ResolvedOptions::entry(std::string_view name, tenon_option_type type) const {
  const Entry& found = *look_up(name);
  const bool both_text = type == TENON_OPTION_TEXT && found.type == TENON_OPTION_PATH;
  if (found.type != type && !both_text) {
    fail_plugin(fmt::format("{} declares option '{}' as {} and reads it as {}", owner_, name,
                            kTypeNames[found.type], kTypeNames[type]));
  }
  if (!found.present) {
    fail_plugin(fmt::format("{} reads option '{}', which was left out and has no default; ask has() first",
                            owner_, name));
  }
  return found;
}

bool ResolvedOptions::has(std::string_view name) const {
  return look_up(name)->present;
}

bool ResolvedOptions::boolean(std::string_view name) const {
  return std::get<bool>(entry(name, TENON_OPTION_BOOL).datum);
}

std::int64_t ResolvedOptions::integer(std::string_view name) const {
  return std::get<std::int64_t>(entry(name, TENON_OPTION_INT).datum);
}

double ResolvedOptions::real(std::string_view name) const {
  return std::get<double>(entry(name, TENON_OPTION_REAL).datum);
}

std::string_view ResolvedOptions::text(std::string_view name) const {
  return std::get<std::string>(entry(name, TENON_OPTION_TEXT).datum);
}

std::span<const std::int64_t> ResolvedOptions::integers(std::string_view name) const {
  return std::get<std::vector<std::int64_t>>(entry(name, TENON_OPTION_INT_LIST).datum);
}

std::span<const double> ResolvedOptions::reals(std::string_view name) const {
  return std::get<std::vector<double>>(entry(name, TENON_OPTION_REAL_LIST).datum);
}

std::span<const std::string_view> ResolvedOptions::texts(std::string_view name) const {
  return entry(name, TENON_OPTION_TEXT_LIST).views;
}

void* ResolvedOptions::component_pointer(std::string_view name, std::string_view kind) const {
  const Entry& found = *look_up(name);
  if (found.type != TENON_OPTION_COMPONENT) {
    fail_plugin(fmt::format("{} declares option '{}' as {} and reads it as component", owner_, name,
                            kTypeNames[found.type]));
  }
  if (!found.present) return nullptr;
  if (found.inner.kind != kind) {
    fail_plugin(fmt::format("{} declares option '{}' as a component of kind {} and reads it as {}", owner_,
                            name, found.inner.kind, kind));
  }
  if (found.inner.instance == nullptr) {
    fail_plugin(fmt::format("{} reads option '{}' before its component was made", owner_, name));
  }
  return found.inner.instance.get();
}

void ResolvedOptions::set_origin(std::string_view name, const Origin& origin) {
  for (const auto& entry : entries_) {
    if (entry->name == name) entry->origin = origin;
  }
}

std::string ResolvedOptions::place_of(std::string_view message) const {
  for (const bool marked : {true, false}) {
    const Entry* first = nullptr;
    std::size_t where = std::string_view::npos;
    for (const auto& entry : entries_) {
      const std::size_t at = is_written(entry->origin) ? named_at(message, entry->name, marked) : where;
      if (at >= where) continue;
      where = at;
      first = entry.get();
    }
    if (first == nullptr) continue;
    for (const Section& section : first->sections) {
      if (message.find(section.first) == std::string_view::npos) continue;
      if (std::string inner = section.second->place_of(message); !inner.empty()) return inner;
    }
    return first->origin.text();
  }
  return is_written(origin_) ? origin_.text() : "";
}

void ResolvedOptions::declare(std::string_view name, tenon_option_type type) {
  auto entry = std::make_unique<Entry>();
  entry->name = name;
  entry->type = type;
  entries_.push_back(std::move(entry));
}

void ResolvedOptions::store(std::string_view name, tenon_option_type type, Datum datum) {
  declare(name, type);
  Entry& entry = *entries_.back();
  entry.present = true;
  entry.datum = std::move(datum);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&entry.datum)) {
    entry.views.assign(texts->begin(), texts->end());
  }
}

void ResolvedOptions::store(std::string_view name, InnerComponent inner) {
  declare(name, TENON_OPTION_COMPONENT);
  entries_.back()->present = true;
  entries_.back()->inner = std::move(inner);
}

std::unique_ptr<ResolvedOptions> ResolvedOptions::unmade() const {
  auto copy = std::make_unique<ResolvedOptions>(owner_);
  copy->origin_ = origin_;
  for (const auto& entry : entries_) {
    if (!entry->present) {
      copy->declare(entry->name, entry->type);
    } else if (entry->type == TENON_OPTION_COMPONENT) {
      const InnerComponent& inner = entry->inner;
      copy->store(entry->name, InnerComponent{inner.kind, inner.type,
                                              inner.options == nullptr ? nullptr : inner.options->unmade()});
    } else if (entry->type == TENON_OPTION_SECTIONS) {
      std::vector<Section> sections;
      for (const Section& section : entry->sections)
        sections.emplace_back(section.first, section.second->unmade());
      copy->store(entry->name, std::move(sections));
    } else {
      copy->store(entry->name, entry->type, entry->datum);
    }
    copy->entries_.back()->origin = entry->origin;
  }
  return copy;
}

std::vector<std::pair<std::string, InnerComponent*>> ResolvedOptions::inner() {
  std::vector<std::pair<std::string, InnerComponent*>> out;
  for (const auto& entry : entries_) {
    if (entry->type == TENON_OPTION_COMPONENT && entry->present) out.emplace_back(entry->name, &entry->inner);
  }
  return out;
}

void ResolvedOptions::store(std::string_view name, std::vector<Section> sections) {
  declare(name, TENON_OPTION_SECTIONS);
  Entry& entry = *entries_.back();
  entry.present = true;
  entry.sections = std::move(sections);
  for (const Section& section : entry.sections) entry.views.push_back(section.first);
}

std::span<const std::string_view> ResolvedOptions::section_names(std::string_view name) const {
  if (look_up(name)->type == TENON_OPTION_SECTIONS && !has(name)) return {};
  return entry(name, TENON_OPTION_SECTIONS).views;
}

const Options& ResolvedOptions::section(std::string_view name, std::string_view section) const {
  for (const Section& held : entry(name, TENON_OPTION_SECTIONS).sections) {
    if (held.first == section) return *held.second;
  }
  fail_plugin(fmt::format("{} reads the section '{}' of option '{}', which the user did not write", owner_,
                          section, name));
}

ComponentCatalog::~ComponentCatalog() = default;

TENON_ABI_END
