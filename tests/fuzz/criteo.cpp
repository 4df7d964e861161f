// Target: rows of Criteo's logs, plain or gzip. Every line is a row or is counted, no line is both; plain
// rows equal those of a slow reading that splits first, so columns cannot move; a byte order mark before the
// first row and sizes of the reads do not matter.
#include "criteo_reader.hpp"
#include "input.hpp"
#include "slow_row.hpp"

#include <tenon/error.hpp>

#include <algorithm>

namespace {

using namespace tenon;

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
    for (std::size_t begin = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      if (const auto row = ctr::slow_row(std::string(text.substr(begin, end - begin))))
        expected.push_back(*row);
      begin = end + 1;
    }
    fuzz::require(result.rows == expected, "other rows than the slow reading");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
