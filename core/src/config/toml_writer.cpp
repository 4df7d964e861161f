// Value -> canonical TOML, flat keys, differences. The writer promises that reading its text gives an equal
// value.
#include <tenon/config.hpp>

#include "config/key_path.hpp"

#include <fmt/format.h>

#include <algorithm>

TENON_ABI_BEGIN
namespace {

bool is_table_list(const Value& value) {
  return value.is_array() && !value.array().empty() &&
         std::all_of(value.array().begin(), value.array().end(),
                     [](const Value& element) { return element.is_table(); });
}

// A comment ends at a line break, so nothing that could hold one goes in unchecked (--set takes any text).
std::string origin_comment(const Value& value) {
  std::string text = value.origin.text();
  if (!value.earlier.empty() && value.earlier.back().appended) {
    text += ", appended to " + value.earlier.back().origin.text();
  }
  return "  # " + config::printable(text);
}

class Writer {
 public:
  explicit Writer(bool with_origins) : with_origins_(with_origins) {}

  // Plain values come first: after a [header] they would belong to the sub-table.
  void write_table(const Value& value, const std::string& path) {
    for (const Member& member : value.table()) {
      if (member.value.is_table() || is_table_list(member.value)) continue;
      out_ += fmt::format("{} = {}", join_key("", member.key), member.value.inline_toml());
      end_line(member.value);
    }
    for (const Member& member : value.table()) {
      const std::string key = join_key(path, member.key);
      if (member.value.is_table()) {
        header("[" + key + "]");
        out_ += '\n';
        write_table(member.value, key);
      } else if (is_table_list(member.value)) {
        for (const Value& element : member.value.array()) {
          header("[[" + key + "]]");
          end_line(element);
          write_table(element, key);
        }
      }
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void header(const std::string& text) {
    if (!out_.empty()) out_ += '\n';
    out_ += text;
  }

  void end_line(const Value& value) {
    if (with_origins_) out_ += origin_comment(value);
    out_ += '\n';
  }

  bool with_origins_;
  std::string out_;
};

void flatten_into(const Value& value, const std::string& key, std::map<std::string, std::string>& out) {
  if (value.is_table() && !value.table().empty()) {
    for (const Member& member : value.table()) flatten_into(member.value, join_key(key, member.key), out);
  } else if (is_table_list(value)) {
    for (std::size_t i = 0; i < value.array().size(); ++i) {
      flatten_into(value.array()[i], fmt::format("{}[{}]", key, i), out);
    }
  } else if (!key.empty()) {
    out[key] = value.inline_toml();
  }
}

}  // namespace

std::string to_toml(const Value& root, bool with_origins) {
  Writer writer(with_origins);
  writer.write_table(root, "");
  return writer.take();
}

std::map<std::string, std::string> flatten(const Value& root) {
  std::map<std::string, std::string> out;
  flatten_into(root, "", out);
  return out;
}

std::vector<Difference> differences(const Value& left, const Value& right) {
  const auto a = flatten(left), b = flatten(right);
  std::vector<Difference> out;
  for (auto x = a.begin(), y = b.begin(); x != a.end() || y != b.end();) {
    if (y == b.end() || (x != a.end() && x->first < y->first)) {
      out.push_back({x->first, x->second, ""});
      ++x;
    } else if (x == a.end() || y->first < x->first) {
      out.push_back({y->first, "", y->second});
      ++y;
    } else {
      if (x->second != y->second) out.push_back({x->first, x->second, y->second});
      ++x;
      ++y;
    }
  }
  return out;
}

TENON_ABI_END
