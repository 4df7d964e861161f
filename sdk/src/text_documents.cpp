// Empty documents join the separator before them, so the parts of a plain text make up all of it.
#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/sdk/json.hpp>
#include <tenon/sdk/text_documents.hpp>

#include <fmt/format.h>

#include <algorithm>

TENON_ABI_BEGIN
namespace {

constexpr std::size_t kNone = std::string_view::npos;

struct FoundSeparator {
  std::size_t begin = kNone, end = kNone;  ///< kNone: there is no further one
};

/// The next separator that begins at `from` or later; `from` is the begin of a line for kLine.
FoundSeparator find_separator(std::string_view text, const DocumentRule& rule, std::size_t from) {
  if (rule.form == DocumentForm::kByte) {
    const std::size_t at = text.find(rule.byte, from);
    return at == kNone ? FoundSeparator{} : FoundSeparator{at, at + 1};
  }
  for (std::size_t at = from; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size()), next = std::min(end + 1, text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line == rule.line) return {at, next};
    at = next;
  }
  return {};
}

void split_text(std::string_view text, const DocumentRule& rule, const std::string& label,
                DocumentCounts& counts, const std::function<void(const TextDocument&)>& each) {
  FoundSeparator next = find_separator(text, rule, 0);
  if (next.begin == kNone && rule.form == DocumentForm::kLine)
    fail_config(
        fmt::format("{}: expected documents with the line \"{}\" between them, found no such line; name the "
                    "separator of this file",
                    label, rule.line));
  if (next.begin == kNone)
    fail_config(
        fmt::format("{}: expected documents with the byte {} between them, found no such byte; name the "
                    "separator of this file",
                    label, static_cast<unsigned char>(rule.byte)));
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = next.begin == kNone ? text.size() : next.begin;
    std::size_t after = next.begin == kNone ? text.size() : next.end;
    if (end == begin) {  // the text begins with a separator
      ++counts.empty;
      begin = after;
      next = find_separator(text, rule, after);
      continue;
    }
    next = find_separator(text, rule, after);
    while (next.begin == after && after < text.size()) {
      ++counts.empty;
      after = next.end;
      next = find_separator(text, rule, after);
    }
    ++counts.documents;
    each({text.substr(begin, end - begin), text.substr(end, after - end)});
    begin = after;
  }
}

/// The text under the key of a line; throws Error(kConfig).
std::string text_of_line(std::string_view line, const std::string& key, const std::string& where) {
  const Value value = parse_json(line, where);
  const Value* const text = value.is_table() ? value.find(key) : nullptr;
  if (text == nullptr || !text->is_text())
    fail_config(fmt::format("{}: expected an object with a text under '{}', found {}", where, key,
                            text != nullptr ? text->description() : "none"));
  return text->text();
}

void split_lines(std::string_view text, const DocumentRule& rule, DocumentCounts& counts,
                 const std::function<void(const TextDocument&)>& each) {
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == kNone) continue;
    ++counts.lines;
    std::string document;
    try {
      document = text_of_line(line, rule.key, fmt::format("line {}", number));
    } catch (const Error& error) {
      if (counts.bad++ == 0) counts.first_bad = error.what();
      continue;
    }
    ++(document.empty() ? counts.empty : counts.documents);
    if (!document.empty()) each({document, {}});
  }
}

}  // namespace

void check_bad_lines(const DocumentCounts& counts, const DocumentRule& rule, const std::string& label) {
  if (static_cast<double>(counts.bad) > rule.max_bad_share * static_cast<double>(counts.lines))
    fail_config(
        fmt::format("{}: {} of {} lines are no JSON objects with a text under '{}', first {}. That is more "
                    "than the share {} allows; mend the file, or raise the share",
                    label, counts.bad, counts.lines, rule.key, counts.first_bad, rule.max_bad_share));
}

DocumentCounts for_each_document(std::string_view text, const DocumentRule& rule, const std::string& label,
                                 const std::function<void(const TextDocument&)>& each) {
  DocumentCounts counts;
  switch (rule.form) {
    case DocumentForm::kWhole:
      counts.documents = text.empty() ? 0 : 1;
      if (!text.empty()) each({text, {}});
      break;
    case DocumentForm::kLine:
    case DocumentForm::kByte:
      split_text(text, rule, label, counts, each);
      break;
    case DocumentForm::kJsonLines:
      split_lines(text, rule, counts, each);
      break;
  }
  check_bad_lines(counts, rule, label);
  if (counts.documents == 0)
    fail_config(fmt::format("{}: expected at least one document with text, found none", label));
  return counts;
}

TENON_ABI_END
