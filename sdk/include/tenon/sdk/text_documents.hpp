// Documents of a text: what lies between separators, or the lines of JSON Lines. Data sets and
// `tenon tokenize` share the rule; neither files nor tokens occur here.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

enum class DocumentForm : std::uint8_t {
  kWhole,      ///< the text is one document
  kLine,       ///< a line of its own stands between two documents
  kByte,       ///< a byte stands between two documents
  kJsonLines,  ///< a JSON object per line, with the document as text under a key
};

struct DocumentRule {
  DocumentForm form = DocumentForm::kWhole;
  std::string line = {};  ///< without its end; "": an empty line
  char byte = '\0';
  std::string key = {};
  double max_bad_share = 0.001;  ///< of the lines of JSON Lines: more are refused
};

struct TextDocument {
  /// At least one byte; valid during the call. A part of the whole text, but for JSON Lines.
  std::string_view text;
  /// The bytes right after `text` up to the next document: separators, and empty documents between them.
  /// Empty for JSON Lines.
  std::string_view separator;
};

struct DocumentCounts {
  std::int64_t documents = 0;
  std::int64_t empty = 0;  ///< without a byte; left out
  std::int64_t lines = 0;  ///< of JSON Lines, blank ones left out
  std::int64_t bad = 0;    ///< of them, left out
  std::string first_bad;   ///< "line 17: ..."
};

/// Throws Error(kConfig) with the first bad line where more lines than max_bad_share are no JSON objects with
/// a text under the key. `label` begins the message.
void check_bad_lines(const DocumentCounts& counts, const DocumentRule& rule, const std::string& label);

/// Calls `each` for every document in order. Bytes of plain text are not looked at, UTF-8 or not. `label`
/// begins messages. Throws Error(kConfig) where no separator is found, where the text has no document, and
/// as check_bad_lines().
DocumentCounts for_each_document(std::string_view text, const DocumentRule& rule, const std::string& label,
                                 const std::function<void(const TextDocument&)>& each);

TENON_ABI_END
