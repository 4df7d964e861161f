// Fields are separated by a comma and, as the repository has them, one space. Every field is checked against
// its own list, so columns cannot shift unseen.
#include "adult_file.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>

namespace tenon::ctr {
namespace {

/// Returns at most 40 bytes in quotes; bytes outside printable ASCII become \xNN.
std::string shown_text(std::string_view bytes) {
  constexpr std::size_t kMost = 40;
  std::string text = "'";
  for (const char c : bytes.substr(0, kMost)) {
    if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text + (bytes.size() > kMost ? "'..." : "'");
}

using Values = std::span<const std::string_view>;

constexpr std::string_view kWorkclass[] = {"Private",   "Self-emp-not-inc", "Self-emp-inc", "Federal-gov",
                                           "Local-gov", "State-gov",        "Without-pay",  "Never-worked"};
constexpr std::string_view kEducation[] = {
    "Bachelors", "Some-college", "11th",    "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th",
    "7th-8th",   "12th",         "Masters", "1st-4th", "10th",        "Doctorate",  "5th-6th",   "Preschool"};
constexpr std::string_view kMarital[] = {"Married-civ-spouse", "Divorced", "Never-married",
                                         "Separated",          "Widowed",  "Married-spouse-absent",
                                         "Married-AF-spouse"};
constexpr std::string_view kOccupation[] = {
    "Tech-support",     "Craft-repair",      "Other-service",     "Sales",        "Exec-managerial",
    "Prof-specialty",   "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing",
    "Transport-moving", "Priv-house-serv",   "Protective-serv",   "Armed-Forces"};
constexpr std::string_view kRelationship[] = {"Wife",          "Own-child",      "Husband",
                                              "Not-in-family", "Other-relative", "Unmarried"};
constexpr std::string_view kRace[] = {"White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"};
constexpr std::string_view kSex[] = {"Female", "Male"};
constexpr std::string_view kCountry[] = {"United-States",
                                         "Cambodia",
                                         "England",
                                         "Puerto-Rico",
                                         "Canada",
                                         "Germany",
                                         "Outlying-US(Guam-USVI-etc)",
                                         "India",
                                         "Japan",
                                         "Greece",
                                         "South",
                                         "China",
                                         "Cuba",
                                         "Iran",
                                         "Honduras",
                                         "Philippines",
                                         "Italy",
                                         "Poland",
                                         "Jamaica",
                                         "Vietnam",
                                         "Mexico",
                                         "Portugal",
                                         "Ireland",
                                         "France",
                                         "Dominican-Republic",
                                         "Laos",
                                         "Ecuador",
                                         "Taiwan",
                                         "Haiti",
                                         "Columbia",
                                         "Hungary",
                                         "Guatemala",
                                         "Nicaragua",
                                         "Scotland",
                                         "Thailand",
                                         "Yugoslavia",
                                         "El-Salvador",
                                         "Trinadad&Tobago",
                                         "Peru",
                                         "Hong",
                                         "Holand-Netherlands"};
constexpr Values kValues[kAdultCategories] = {kWorkclass,    kEducation, kMarital, kOccupation,
                                              kRelationship, kRace,      kSex,     kCountry};

/// Content of one field of a line: the number or category at this index.
struct Field {
  std::string_view name;
  bool is_number;
  std::size_t place;
};
constexpr Field kFields[] = {{"age", true, 0},
                             {"workclass", false, 0},
                             {"fnlwgt", true, 1},
                             {"education", false, 1},
                             {"education_num", true, 2},
                             {"marital_status", false, 2},
                             {"occupation", false, 3},
                             {"relationship", false, 4},
                             {"race", false, 5},
                             {"sex", false, 6},
                             {"capital_gain", true, 3},
                             {"capital_loss", true, 4},
                             {"hours_per_week", true, 5},
                             {"native_country", false, 7}};
constexpr std::size_t kColumns = std::size(kFields) + 1;
constexpr std::int64_t kLargestFile = std::int64_t{256} << 20;

class LineReader {
 public:
  LineReader(std::string_view path, std::size_t line) : path_(path), line_(line) {}

  AdultRow row(std::string_view text) const {
    std::array<std::string_view, kColumns> columns;
    std::size_t found = 0;
    for (std::size_t begin = 0;; ++found) {
      const std::size_t comma = text.find(',', begin);
      if (found < kColumns) columns[found] = trimmed(text.substr(begin, comma - begin));
      if (comma == std::string_view::npos) break;
      begin = comma + 1;
    }
    ++found;
    if (found != kColumns) fail(fmt::format("expected {} fields, found {}", kColumns, found));
    AdultRow row;
    for (std::size_t i = 0; i < std::size(kFields); ++i) {
      const Field& field = kFields[i];
      if (field.is_number) {
        row.numbers[field.place] = number(field.name, columns[i]);
      } else {
        row.ids[field.place] = id(field.name, kValues[field.place], columns[i]);
      }
    }
    row.label = label(columns.back());
    return row;
  }

 private:
  [[noreturn]] void fail(const std::string& text) const {
    fail_config(fmt::format("data file '{}': line {}: {}", path_, line_, text));
  }
  static std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
  }
  std::int32_t number(std::string_view name, std::string_view text) const {
    std::int32_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size() || value < 0) {
      fail(fmt::format("field {}: expected a whole number from 0 to 2147483647, found {}", name,
                       shown_text(text)));
    }
    return value;
  }
  std::int32_t id(std::string_view name, Values values, std::string_view text) const {
    if (text == "?") return 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == text) return static_cast<std::int32_t>(i + 1);
    }
    fail(fmt::format("field {}: expected ? or one of the {} values that adult.names lists, found {}", name,
                     values.size(), shown_text(text)));
  }
  std::int32_t label(std::string_view text) const {
    const std::string_view plain = text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
    if (plain == ">50K") return 1;
    if (plain == "<=50K") return 0;
    fail(fmt::format("field income: expected <=50K or >50K, found {}", shown_text(text)));
  }

  std::string_view path_;
  std::size_t line_;
};

}  // namespace

std::span<const std::string_view> adult_values(std::size_t table) {
  return kValues[table];
}

std::vector<AdultRow> parse_adult(std::string_view text, const std::string& path) {
  std::vector<AdultRow> rows;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const std::string_view here = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!here.empty() && here.front() != '|') rows.push_back(LineReader(path, line).row(here));
  }
  if (rows.empty()) fail_config(fmt::format("data file '{}': expected rows of UCI Adult, found none", path));
  return rows;
}

std::vector<AdultRow> read_adult(const std::string& path) {
  const std::unique_ptr<FileSystem> files = make_posix_files();
  std::string text;
  try {
    text = read_text(*files, path, kLargestFile);
  } catch (const FileError& error) {
    fail_config(fmt::format("data file '{}': {}", path, error.what()));
  }
  return parse_adult(text, path);
}

}  // namespace tenon::ctr
