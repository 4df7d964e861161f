// Target: rows of Criteo's logs, plain or gzip. Every line is a row or is counted, no line is both; plain
// rows equal those of a slow reading that splits first, so columns cannot move; sizes of the reads do not
// matter.
#include "criteo_reader.hpp"
#include "input.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace {

using namespace tenon;

std::optional<ctr::CriteoRow> slow_row(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (fields.size() != 40 || (fields[0] != "0" && fields[0] != "1")) return std::nullopt;
  ctr::CriteoRow row;
  row.flags = fields[0] == "1" ? 1u << 31 : 0;
  for (std::size_t i = 0; i < 39; ++i) {
    const std::string& field = fields[1 + i];
    const bool number = i < 13;
    if (number) row.numbers[i] = ctr::kMissingNumber;
    if (field.empty()) continue;
    const std::string digits = number && field[0] == '-' ? field.substr(1) : field;
    const char* const allowed = number ? "0123456789" : "0123456789abcdefABCDEF";
    if (digits.empty() || digits.size() > (number ? 10 : 8) ||
        digits.find_first_not_of(allowed) != std::string::npos) {
      return std::nullopt;
    }
    const long long value = std::strtoll(field.c_str(), nullptr, number ? 10 : 16);
    if (number && std::llabs(value) > 2147483647) return std::nullopt;
    if (number) {
      row.numbers[i] = static_cast<std::int32_t>(value);
    } else {
      row.categories[i - 13] = static_cast<std::uint32_t>(value);
      row.flags |= 1u << (i - 13);
    }
  }
  return row;
}

struct Result {
  std::vector<ctr::CriteoRow> rows;
  std::int64_t faults = 0, lines = 0;
};

Result read_all(const std::string& path, std::size_t at_once) {
  ctr::CriteoReader reader(path, ctr::kLongestLine + 500);  // small, so that lines cross its end
  Result result;
  std::vector<ctr::CriteoRow> buffer(at_once);
  while (const std::size_t count = reader.read(buffer)) {
    result.rows.insert(result.rows.end(), buffer.begin(),
                       buffer.begin() + static_cast<std::ptrdiff_t>(count));
  }
  result.faults = reader.faults().total();
  result.lines = reader.lines();
  fuzz::require(reader.faults().text().empty() == (result.faults == 0), "faults without words");
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const fuzz::MemoryFile input(text);
  try {
    const Result result = read_all(input.path(), 64);
    fuzz::require(result.lines == static_cast<std::int64_t>(result.rows.size()) + result.faults,
                  "a line lost");
    fuzz::require(read_all(input.path(), 1).rows == result.rows, "two readings");
    if (text.starts_with("\x1f")) return 0;  // perhaps gzip
    std::vector<ctr::CriteoRow> expected;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      if (const auto row = slow_row(std::string(text.substr(begin, end - begin)))) expected.push_back(*row);
      begin = end + 1;
    }
    fuzz::require(result.rows == expected, "other rows than the slow reading");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
