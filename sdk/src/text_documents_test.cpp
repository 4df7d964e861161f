// Documents of plain text and of JSON Lines, and what is refused.
#include <tenon/error.hpp>
#include <tenon/sdk/text_documents.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace tenon::text_documents_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using Parts = std::vector<std::pair<std::string, std::string>>;

/// Texts and separators, and the counts.
std::pair<Parts, DocumentCounts> split(std::string_view text, const DocumentRule& rule) {
  Parts parts;
  const DocumentCounts counts = for_each_document(
      text, rule, "data file 'x'",
      [&](const TextDocument& document) { parts.emplace_back(document.text, document.separator); });
  EXPECT_EQ(counts.documents, static_cast<std::int64_t>(parts.size()));
  return {parts, counts};
}
std::string refusal(std::string_view text, const DocumentRule& rule) {
  return error_of([&] { split(text, rule); });
}

const DocumentRule kLines{.form = DocumentForm::kLine, .line = "---"};
const DocumentRule kBytes{.form = DocumentForm::kByte, .byte = '\x1E'};
const DocumentRule kJson{.form = DocumentForm::kJsonLines, .key = "text"};

TEST(TextDocuments, AreTheWholeTextWithoutARule) {
  EXPECT_EQ(split("a\n---\nb", {}).first, (Parts{{"a\n---\nb", ""}}));
}

TEST(TextDocuments, LieBetweenLines) {
  struct Case {
    std::string_view text;
    Parts parts;
    std::int64_t empty;
  } const cases[] = {
      {"a\n---\nb\n", {{"a\n", "---\n"}, {"b\n", ""}}, 0},
      {"a\n---\r\nb\n---", {{"a\n", "---\r\n"}, {"b\n", "---"}}, 0},
      {"a\n----\n ---\n---x\n---\nb", {{"a\n----\n ---\n---x\n", "---\n"}, {"b", ""}}, 0},
      {"---\n\n---\n---\nb", {{"\n", "---\n---\n"}, {"b", ""}}, 2},
      {"a\n---\n---\n---\n", {{"a\n", "---\n---\n---\n"}}, 2},
      {"------\n---\n\xFF\xC3\n", {{"------\n", "---\n"}, {"\xFF\xC3\n", ""}}, 0},
  };
  for (const Case& c : cases) {
    const auto [parts, counts] = split(c.text, kLines);
    EXPECT_EQ(parts, c.parts) << c.text;
    EXPECT_EQ(counts.empty, c.empty) << c.text;
  }
}

TEST(TextDocuments, LieBetweenEmptyLines) {
  const DocumentRule empty{.form = DocumentForm::kLine};
  EXPECT_EQ(split("\na\nb\n\n\r\nc\n", empty).first, (Parts{{"a\nb\n", "\n\r\n"}, {"c\n", ""}}));
  EXPECT_EQ(split("a\n\nb\n\n", empty).first, (Parts{{"a\n", "\n"}, {"b\n", "\n"}}));
  EXPECT_NE(refusal("a\nb\n", empty), "no error") << "the end of the text is no line";
}

TEST(TextDocuments, LieBetweenBytes) {
  const auto [parts, counts] = split(
      "\x1E"
      "a\x1E\x1E\xFF\n\x1E",
      kBytes);
  EXPECT_EQ(parts, (Parts{{"a", "\x1E\x1E"}, {"\xFF\n", "\x1E"}}));
  EXPECT_EQ(counts.empty, 2);
  const DocumentRule zeros{.form = DocumentForm::kByte, .byte = '\0'};
  EXPECT_EQ(split(std::string_view("a\0b", 3), zeros).first, (Parts{{"a", std::string(1, '\0')}, {"b", ""}}));
}

TEST(TextDocuments, MakeUpAllOfAPlainText) {
  const std::string text = "one\n---\ntwo\n---\n---\nthree\n---\n";
  std::string joined;
  for (const auto& [document, separator] : split(text, kLines).first) joined += document + separator;
  EXPECT_EQ(joined, text);
}

TEST(TextDocuments, AreTheTextsOfJsonLines) {
  const auto [parts, counts] = split(
      "{\"text\": \"a\\n\\u00e9\", \"id\": 1}\r\n\n  \n{\"text\": \"\"}\n{\"id\": [2], \"text\": \"b\"}",
      kJson);
  EXPECT_EQ(parts, (Parts{{"a\n\xC3\xA9", ""}, {"b", ""}}));
  EXPECT_EQ(counts.empty, 1);
  EXPECT_EQ(counts.lines, 3);
  EXPECT_EQ(counts.bad, 0);
}

TEST(TextDocuments, BrokenLinesAreCountedUpToAShare) {
  std::string text;
  for (int i = 0; i < 9; ++i) text += "{\"text\": \"ok\"}\n";
  const std::string broken[] = {"{\"text\": \"cut",     "[1, 2]",
                                "{\"other\": \"x\"}",   "{\"text\": 3}",
                                "{\"text\": \"\xFF\"}", "{\"text\": \"a\", \"text\": \"b\"}"};
  for (const std::string& line : broken) {
    DocumentRule rule = kJson;
    rule.max_bad_share = 0.1;
    const DocumentCounts counts = split(text + line + "\n", rule).second;
    EXPECT_EQ(counts.bad, 1) << line;
    EXPECT_EQ(counts.documents, 9) << line;
    EXPECT_EQ(counts.first_bad.substr(0, 8), "line 10:") << line;
    rule.max_bad_share = 0.09;
    EXPECT_NE(refusal(text + line + "\n", rule), "no error") << line;
  }
  EXPECT_EQ(
      refusal("{\"text\": \"a\"}\n{\"text\": 3}\n[]\n", kJson),
      "data file 'x': 2 of 3 lines are no JSON objects with a text under 'text', first line 2: expected "
      "an object with a text under 'text', found the whole number 3. That is more than the share 0.001 "
      "allows; mend the file, or raise the share");
}

TEST(TextDocuments, AreExpected) {
  EXPECT_EQ(refusal("a\n--- \nb", kLines),
            "data file 'x': expected documents with the line \"---\" between them, found no such line; name "
            "the separator of this file");
  EXPECT_EQ(refusal("a\nb", kBytes),
            "data file 'x': expected documents with the byte 30 between them, found no such byte; name the "
            "separator of this file");
  EXPECT_EQ(refusal("---\n---\n", kLines),
            "data file 'x': expected at least one document with text, found none");
  EXPECT_EQ(refusal("\n\n", kJson), "data file 'x': expected at least one document with text, found none");
}

}  // namespace
}  // namespace tenon::text_documents_test
