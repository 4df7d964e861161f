#include "plugin/description.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

namespace tenon::plugin {
namespace {

std::vector<std::string> texts(const char* const* list) {
  std::vector<std::string> result;
  for (; list != nullptr && *list != nullptr; ++list) result.emplace_back(*list);
  return result;
}

OptionDescription describe(const tenon_option_v1& option) {
  OptionDescription result;
  result.name = option.name;
  result.type = option.type;
  result.flags = option.flags;
  if (option.default_toml != nullptr) result.default_toml = option.default_toml;
  result.min = option.min;
  result.max = option.max;
  result.choices = texts(option.choices);
  result.unit = option.unit;
  result.doc = option.doc;
  result.since = option.since;
  if (option.component_kind != nullptr) result.component_kind = option.component_kind;
  result.old_names = texts(option.old_names);
  for (auto inner = option.section_options; inner != nullptr && *inner != nullptr; ++inner)
    result.section.push_back(describe(**inner));
  return result;
}

// The line form: a key, then words.
class LineWriter {
 public:
  template <typename... Words>
  void line(std::string_view key, const Words&... words) {
    text_ += key;
    (add(words), ...);
    text_ += '\n';
  }
  std::string take() { return std::move(text_); }

 private:
  void add(std::string_view word) {
    text_ += '\t';
    for (char c : word) {
      if (c == '\t')
        text_ += "\\t";
      else if (c == '\n')
        text_ += "\\n";
      else if (c == '\\')
        text_ += "\\\\";
      else
        text_ += c;
    }
  }
  void add(std::uint64_t number) { text_ += fmt::format("\t{}", number); }
  // Bits, so that NaN and every other value come back as they were.
  void add(double number) {
    std::uint64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    add(bits);
  }
  void add(const std::vector<std::string>& words) {
    add(static_cast<std::uint64_t>(words.size()));
    for (const std::string& word : words) add(word);
  }
  std::string text_;
};

// Reads the words of one line; after a misreading everything is empty and ok() is false.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  bool ok() const { return ok_; }
  bool done() const { return ok_ && ended_; }

  std::string text() {
    if (ended_) ok_ = false;
    if (!ok_) return "";
    const std::size_t tab = rest_.find('\t');
    const std::string_view word = rest_.substr(0, tab);
    ended_ = tab == std::string_view::npos;
    rest_.remove_prefix(ended_ ? rest_.size() : tab + 1);
    std::string result;
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (word[i] != '\\') {
        result += word[i];
        continue;
      }
      const char c = ++i < word.size() ? word[i] : '\0';
      ok_ = ok_ && (c == 't' || c == 'n' || c == '\\');
      result += c == 't' ? '\t' : c == 'n' ? '\n' : c;
    }
    return result;
  }
  std::uint64_t number(std::uint64_t most = UINT64_MAX) {
    const std::string word = text();
    std::uint64_t value = 0;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    ok_ = ok_ && status == std::errc() && end == word.data() + word.size() && value <= most;
    return ok_ ? value : 0;
  }
  std::uint32_t small(std::uint64_t most = UINT32_MAX) { return static_cast<std::uint32_t>(number(most)); }
  double real() {
    const std::uint64_t bits = number();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  std::vector<std::string> list() {
    std::vector<std::string> result;
    for (std::uint64_t left = number(); left > 0 && ok_; --left) result.push_back(text());
    return result;
  }

 private:
  std::string_view rest_;
  bool ended_ = false;
  bool ok_ = true;
};

OptionDescription read_option(LineReader& words) {
  OptionDescription option;
  option.name = words.text();
  option.type = words.small(TENON_OPTION_SECTIONS);
  option.flags = words.small();
  const std::vector<std::string> default_toml = words.list();
  if (!default_toml.empty()) option.default_toml = default_toml[0];
  option.min = words.real();
  option.max = words.real();
  option.choices = words.list();
  option.unit = words.text();
  option.doc = words.text();
  option.since = words.text();
  option.component_kind = words.text();
  option.old_names = words.list();
  return option;
}

}  // namespace

PluginDescription describe(const tenon_plugin_v1_t& plugin) {
  PluginDescription result{
      plugin.id, plugin.version, plugin.summary, plugin.vendor, plugin.licence, plugin.url, {}};
  for (auto component = plugin.components; *component != nullptr; ++component) {
    const tenon_component_v1& c = **component;
    ComponentDescription& description = result.components.emplace_back();
    description = {
        c.kind, c.id, c.summary, c.maturity, c.capabilities, texts(c.aliases), texts(c.requirements), {}};
    for (auto option = c.options; option != nullptr && *option != nullptr; ++option) {
      description.options.push_back(describe(**option));
    }
  }
  return result;
}

namespace {

void write_option(LineWriter& out, std::string_view key, const OptionDescription& o) {
  std::vector<std::string> default_toml;
  if (o.default_toml) default_toml.push_back(*o.default_toml);
  out.line(key, o.name, std::uint64_t{o.type}, std::uint64_t{o.flags}, default_toml, o.min, o.max, o.choices,
           o.unit, o.doc, o.since, o.component_kind, o.old_names);
  for (const OptionDescription& inner : o.section) write_option(out, "section_option", inner);
}

}  // namespace

std::string to_lines(const PluginDescription& d) {
  LineWriter out;
  out.line("plugin", d.id, d.version, d.summary, d.vendor, d.licence, d.url);
  for (const ComponentDescription& c : d.components) {
    out.line("component", c.kind, c.id, c.summary, std::uint64_t{c.maturity}, c.capabilities, c.aliases,
             c.requirements);
    for (const OptionDescription& o : c.options) write_option(out, "option", o);
  }
  out.line("end");
  return out.take();
}

std::optional<PluginDescription> from_lines(std::string_view text) {
  PluginDescription result;
  while (true) {
    const std::size_t end_of_line = text.find('\n');
    if (end_of_line == std::string_view::npos) return std::nullopt;
    LineReader words(text.substr(0, end_of_line));
    text.remove_prefix(end_of_line + 1);
    const std::string key = words.text();
    if (key == "end") {
      if (!words.done() || !text.empty() || result.components.empty()) return std::nullopt;
      return result;
    }
    if (key == "plugin" && result.id.empty()) {
      for (std::string* field :
           {&result.id, &result.version, &result.summary, &result.vendor, &result.licence, &result.url}) {
        *field = words.text();
      }
    } else if (key == "component" && !result.id.empty()) {
      ComponentDescription& c = result.components.emplace_back();
      for (std::string* field : {&c.kind, &c.id, &c.summary}) *field = words.text();
      c.maturity = words.small(TENON_DEPRECATED);
      c.capabilities = words.number();
      c.aliases = words.list();
      c.requirements = words.list();
    } else if (key == "option" && !result.components.empty()) {
      result.components.back().options.push_back(read_option(words));
    } else if (key == "section_option" && !result.components.empty() &&
               !result.components.back().options.empty()) {
      result.components.back().options.back().section.push_back(read_option(words));
    } else {
      return std::nullopt;
    }
    if (!words.done()) return std::nullopt;
  }
}

}  // namespace tenon::plugin
