// Rows of UCI Adult, and the full text of every error.
#include "adult_file.hpp"

#include <tenon/testing/folders.hpp>

#include "reference/recorded.hpp"

namespace tenon::ctr::adult_file_test {
namespace {

using testing::error_of;

constexpr const char* kRow =
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, "
    "40, "
    "United-States, <=50K";

/// kRow with `from` replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string row = kRow;
  return row.replace(row.find(from), from.size(), to);
}

TEST(AdultFile, ReadsARowByHand) {
  // Indices in adult.names: State-gov 6, Bachelors 1, Never-married 3, Adm-clerical 9, Not-in-family 4, White
  // 1, Male 2, United-States 1.
  const AdultRow expected{{39, 77516, 13, 2174, 0, 40}, {6, 1, 3, 9, 4, 1, 2, 1}, 0};
  EXPECT_EQ(parse_adult(kRow, "x"), std::vector<AdultRow>{expected});
  EXPECT_EQ(parse_adult("|1x3 Cross validator\n" + std::string(kRow) + ".\n\n", "x"),
            std::vector<AdultRow>{expected})
      << "comment, full stop and empty line, as in adult.test";
  AdultRow missing = expected;
  missing.ids[0] = 0;
  missing.label = 1;
  EXPECT_EQ(parse_adult(changed("State-gov", "?").replace(0, 2, "39") + "\n", "x")[0].ids, missing.ids);
  EXPECT_EQ(parse_adult(changed("<=50K", ">50K"), "x")[0].label, 1);
}

TEST(AdultFile, TheShippedFilesHaveTheCountsThatPythonFinds) {
  const testing::Recorded reference("ctr_adult");
  for (const std::string name : {"train", "test"}) {
    const std::vector<AdultRow> rows =
        read_adult(std::string(TENON_SOURCE_DIR "/data/adult/adult.") + (name == "train" ? "data" : "test"));
    std::vector<double> counts(2 + kAdultCategories);
    for (const AdultRow& row : rows) {
      counts[0] += 1;
      counts[1] += row.label;
      for (std::size_t table = 0; table < kAdultCategories; ++table) counts[2 + table] += row.ids[table] == 0;
    }
    EXPECT_EQ(counts, reference.values(name + ".counts")) << name;
  }
}

TEST(AdultFile, RefusalsAreWholeMessages) {
  const std::string good = std::string(kRow) + "\n";
  struct Case {
    std::string text;
    const char* message;
  } const cases[] = {
      {"", "data file 'x': expected rows of UCI Adult, found none"},
      {"|1x3 Cross validator\n\n", "data file 'x': expected rows of UCI Adult, found none"},
      {good + "39, Private\n", "data file 'x': line 2: expected 15 fields, found 2"},
      {good + good + changed(", 0,", ","), "data file 'x': line 3: expected 15 fields, found 14"},
      {changed(", 0,", ", 0, 0,"), "data file 'x': line 1: expected 15 fields, found 16"},
      {changed("39", "3x"),
       "data file 'x': line 1: field age: expected a whole number from 0 to 2147483647, found '3x'"},
      {changed("2174", "?"),
       "data file 'x': line 1: field capital_gain: expected a whole number from 0 to 2147483647, found '?'"},
      {changed("40,", "-1,"),
       "data file 'x': line 1: field hours_per_week: expected a whole number from 0 to 2147483647, found "
       "'-1'"},
      {changed("77516", "99999999999"),
       "data file 'x': line 1: field fnlwgt: expected a whole number from 0 to 2147483647, found "
       "'99999999999'"},
      {changed("Bachelors", std::string("Bach\0\t", 6) + std::string(50, 'e')),
       "data file 'x': line 1: field education: expected ? or one of the 16 values that adult.names lists, "
       "found 'Bach\\x00\\x09eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee'..."},
      {changed("Male", "White"),
       "data file 'x': line 1: field sex: expected ? or one of the 2 values that adult.names lists, found "
       "'White'"},
      {changed("<=50K", "1"), "data file 'x': line 1: field income: expected <=50K or >50K, found '1'"},
      {good + changed("<=50K", "<=50K\r"),
       "data file 'x': line 2: field income: expected <=50K or >50K, found '<=50K\\x0d'"},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of([&] { parse_adult(c.text, "x"); }), c.message);
  EXPECT_EQ(error_of([] { read_adult("/no/such/file"); }).rfind("data file '/no/such/file': ", 0), 0u);
}

}  // namespace
}  // namespace tenon::ctr::adult_file_test
