// Target: rows of UCI Adult. Every accepted row can be written as text that reads the same, and there are as
// many rows as lines that are neither empty nor comments.
#include "adult_file.hpp"
#include "input.hpp"

#include <tenon/error.hpp>

#include <algorithm>

namespace {

std::string text_of_row(const tenon::ctr::AdultRow& row) {
  constexpr std::string_view kOrder =
      "ncncnccccc"
      "nnnc";  // number or category, as the columns come
  std::string text;
  std::size_t number = 0, category = 0;
  for (const char kind : kOrder) {
    if (kind == 'n') {
      text += std::to_string(row.numbers[number++]);
    } else {
      const std::size_t id = row.ids[category];
      text += id == 0 ? "?" : std::string(tenon::ctr::adult_values(category)[id - 1]);
      ++category;
    }
    text += ", ";
  }
  return text + (row.label == 1 ? ">50K" : "<=50K");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const std::string_view text = fuzz::text_of(data, size);
  try {
    const std::vector<ctr::AdultRow> rows = ctr::parse_adult(text, "input");
    std::string written;
    for (const ctr::AdultRow& row : rows) written += text_of_row(row) + "\n";
    fuzz::require(ctr::parse_adult(written, "written") == rows, "another reading of\n" + written);
    std::size_t lines = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      lines += end > begin && text[begin] != '|' ? 1 : 0;
      begin = end + 1;
    }
    fuzz::require(lines == rows.size(), "another number of rows");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
