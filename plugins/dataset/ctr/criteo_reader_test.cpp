// Lines against a second, slow parser, every kind of malformed line, and plain and gzip streams.
#include "criteo_reader.hpp"
#include "slow_row.hpp"
#include "testing/criteo_text.hpp"

#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>
#include <zlib.h>

#include <algorithm>
#include <optional>

namespace tenon::ctr::criteo_reader_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;

std::optional<CriteoRow> fast_row(const std::string& line) {
  const std::string text = line + "\n";
  CriteoRow row;
  if (!parse_criteo_row(text.data(), text.data() + line.size(), row)) return std::nullopt;
  return row;
}

std::string good_line() {
  return "1\t5\t\t-3\t0\t2147483647\t-"
         "2147483647\t\t8\t9\t10\t11\t12\t13\t68fd1e64\t80e26c9b\tfb936136\t7B4723C4\t25c83c98\t7"
         "e0ccccf\tde7995b8\t1f89b562\ta73ee510\ta8cd5504\tb2cb9c98\t37c9c164\t2824a5f6\t1adce6ef\t8ba8b39a\t"
         "891b62e7\te5b"
         "a7672\tf54016b9\t21ddcdc9\tb1252a9d\t07b5194c\t\t3a171ecb\tc5c50484\te8b83407\t0";
}

TEST(CriteoRow, ReadsARowByHand) {
  const auto row = fast_row(good_line());
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->label(), 1);
  EXPECT_THAT(row->numbers, ElementsAre(5, kMissingNumber, -3, 0, 2147483647, -2147483647, kMissingNumber, 8,
                                        9, 10, 11, 12, 13));
  EXPECT_EQ(row->categories[0], 0x68fd1e64u);
  EXPECT_EQ(row->categories[3], 0x7b4723c4u);
  EXPECT_EQ(row->categories[25], 0u);
  EXPECT_TRUE(row->has(25));
  EXPECT_FALSE(row->has(21));
  EXPECT_EQ(slow_row(good_line()), row);
}

TEST(CriteoRow, AgreesWithASlowReadingOfLinesGoodAndBroken) {
  const RandomKey key = random_key(5, "mutations");
  const std::string bytes("\t\t\t0123456789abcdefABCDEFg-+. \r\0\n\xFF", 34);
  int taken = 0, refused = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    std::string line = criteo_line(1, i);
    line.pop_back();
    // Replace, remove or insert zero to three bytes.
    for (std::uint64_t m = 0; m < random_below(key, 0, i, 4); ++m) {
      const auto words = random_words(key, 1 + m, i);
      const std::size_t place = words[0] % line.size();
      const char byte = bytes[words[1] % bytes.size()];
      if (byte == '\n') continue;
      if (words[2] % 3 == 0) {
        line[place] = byte;
      } else if (words[2] % 3 == 1) {
        line.erase(place, 1);
      } else {
        line.insert(place, 1, byte);
      }
    }
    const auto slow = slow_row(line);
    ASSERT_EQ(fast_row(line), slow) << line;
    ++(slow ? taken : refused);
  }
  EXPECT_GT(taken, 5000);
  EXPECT_GT(refused, 5000);
}

/// The line with field `place` (0 = the label) replaced.
std::string with_field(std::size_t place, const std::string& text) {
  std::string line = good_line();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < place; ++i) begin = line.find('\t', begin) + 1;
  return line.replace(begin, std::min(line.find('\t', begin), line.size()) - begin, text);
}

struct Broken {
  std::string line;
  RowFault fault;
};

std::vector<Broken> broken_lines() {
  std::string all_missing = "0" + std::string(39, '\t');
  return {{"", RowFault::kFieldCount},
          {"1", RowFault::kFieldCount},
          {good_line() + "\t", RowFault::kFieldCount},
          {good_line().substr(2), RowFault::kNoLabel},
          {all_missing.substr(0, 39), RowFault::kNoLabel},
          {with_field(0, ""), RowFault::kLabel},
          {with_field(0, "2"), RowFault::kLabel},
          {with_field(0, "01"), RowFault::kLabel},
          {with_field(1, "x"), RowFault::kNumber},
          {with_field(1, "-"), RowFault::kNumber},
          {with_field(7, "1.0"), RowFault::kNumber},
          {with_field(13, "+1"), RowFault::kNumber},
          {with_field(3, " 1"), RowFault::kNumber},
          {with_field(2, "2147483648"), RowFault::kNumberRange},
          {with_field(2, "-2147483648"), RowFault::kNumberRange},
          {with_field(2, std::string(300, '9')), RowFault::kNumberRange},
          {with_field(14, "68fd1e6g"), RowFault::kHex},
          {with_field(39, "0x12"), RowFault::kHex},
          {with_field(20, "68fd1e640"), RowFault::kHexRange},
          {with_field(39, std::string(3000, 'a')), RowFault::kHexRange},
          {good_line() + "\r", RowFault::kCarriageReturn},
          {with_field(5, std::string("1\0", 2)), RowFault::kNul},
          {std::string(4097, '\t'), RowFault::kTooLong},
          {with_field(14, std::string(1 << 20, 'a')), RowFault::kTooLong}};
}

TEST(CriteoRow, EveryFaultHasItsCause) {
  EXPECT_TRUE(fast_row("0" + std::string(39, '\t')).has_value()) << "everything may be missing but the label";
  for (const Broken& broken : broken_lines()) {
    const std::string shown = broken.line.substr(0, 60);
    EXPECT_FALSE(fast_row(broken.line).has_value()) << shown;
    EXPECT_EQ(diagnose_criteo_row(broken.line), broken.fault) << shown;
  }
}

class CriteoReaderTest : public testing::FolderTest {
 protected:
  std::string write_gzip(const std::string& name, const std::string& bytes) const {
    const std::string path = folder_ + "/" + name;
    const gzFile file = ::gzopen(path.c_str(), "wb1");
    EXPECT_EQ(::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    ::gzclose(file);
    return path;
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  struct Result {
    std::vector<CriteoRow> rows;
    FaultCounts faults;
    std::int64_t lines = 0;
  };
  static Result read_all(const std::string& path, std::size_t at_once = 100,
                         std::size_t buffer_bytes = 4200) {
    CriteoReader reader(path, buffer_bytes);
    Result result;
    std::vector<CriteoRow> buffer(at_once);
    while (const std::size_t count = reader.read(buffer)) {
      result.rows.insert(result.rows.end(), buffer.begin(),
                         buffer.begin() + static_cast<std::ptrdiff_t>(count));
    }
    EXPECT_EQ(reader.read(buffer), 0u);
    result.faults = reader.faults();
    result.lines = reader.lines();
    return result;
  }
};

TEST_F(CriteoReaderTest, PlainAndGzipGiveTheRowsOfTheLines) {
  // The text spans several buffers of the reader.
  std::string text;
  std::vector<CriteoRow> expected;
  for (std::uint64_t i = 0; i < 12000; ++i) {
    const std::string line = criteo_line(2, i);
    expected.push_back(*slow_row(line.substr(0, line.size() - 1)));
    text += line;
  }
  ASSERT_GT(text.size(), std::size_t{2} << 20);
  for (const std::string& path : {write("plain", text), write_gzip("packed", text),
                                  write("no_newline", text.substr(0, text.size() - 1))}) {
    for (const std::size_t at_once : {1u, 100u, 50000u}) {
      const Result result = read_all(path, at_once, at_once == 100 ? 5000 : CriteoReader::kBuffer);
      EXPECT_EQ(result.rows, expected) << path;
      EXPECT_EQ(result.faults.total(), 0) << path;
      EXPECT_EQ(result.lines, 12000) << path;
    }
  }
}

TEST_F(CriteoReaderTest, AByteOrderMarkAndEmptyLastLinesAreNoRows) {
  const std::string mark = "\xEF\xBB\xBF", rows = good_line() + "\n" + good_line() + "\n";
  for (const std::string& end : std::vector<std::string>{"", "\n", "\n\n\n"}) {
    const Result result = read_all(write("edited", mark + rows + end), 1);
    EXPECT_EQ(result.rows.size(), 2u);
    EXPECT_EQ(result.faults.total(), 0) << result.faults.text();
  }
  // Between rows they are faults.
  const Result torn = read_all(write("torn", rows + "\n\n" + rows + mark + good_line() + "\n"));
  EXPECT_EQ(torn.rows.size(), 4u);
  EXPECT_EQ(
      torn.faults.text(),
      "2 with another number of fields than 40 (lines 3, 4), 1 with a label other than 0 or 1 (line 7)");
  EXPECT_TRUE(read_all(write("blank", "\n\n")).rows.empty());
}

TEST_F(CriteoReaderTest, FaultsAreCountedByCauseAndTheOtherRowsStay) {
  std::string text;
  std::array<std::int64_t, kRowFaults> counts{};
  std::int64_t line = 0, first_hex = 0;
  std::vector<CriteoRow> expected;
  for (int round = 0; round < 3; ++round) {
    for (const Broken& broken : broken_lines()) {
      text += broken.line + "\n" + good_line() + "\n";
      line += 2;
      if (broken.fault == RowFault::kHex && first_hex == 0) first_hex = line - 1;
      ++counts[static_cast<std::size_t>(broken.fault)];
      expected.push_back(*slow_row(good_line()));
    }
  }
  for (const std::string& path : {write("plain", text), write_gzip("packed", text)}) {
    const Result result = read_all(path);
    EXPECT_EQ(result.rows, expected) << "no column moved";
    EXPECT_EQ(result.faults.counts, counts);
    EXPECT_EQ(result.lines, line);
    EXPECT_EQ(result.faults.lines[static_cast<std::size_t>(RowFault::kHex)][0], first_hex);
  }
}

TEST_F(CriteoReaderTest, FaultsAsText) {
  FaultCounts faults;
  for (const std::int64_t line : {3, 9, 12, 40}) faults.add(RowFault::kHex, line);
  faults.add(RowFault::kNul, 7);
  EXPECT_EQ(faults.text(),
            "1 with a NUL byte (line 7), 4 with a category that is not hexadecimal (lines 3, 9, 12, ...)");
}

TEST_F(CriteoReaderTest, CutAndDamagedStreamsKeepWhatCameBefore) {
  std::string text;
  for (std::uint64_t i = 0; i < 3000; ++i) text += criteo_line(3, i);
  const std::string packed = bytes_of(write_gzip("whole", text));
  const Result whole = read_all(write("plain", text));
  for (const std::size_t size :
       {packed.size() - 1, packed.size() - 9, packed.size() / 2, packed.size() / 100, std::size_t{19}}) {
    const Result cut = read_all(write("cut", packed.substr(0, size)));
    ASSERT_LE(cut.rows.size(), whole.rows.size());
    EXPECT_TRUE(std::equal(cut.rows.begin(), cut.rows.end(), whole.rows.begin())) << size;
    EXPECT_EQ(cut.faults.count(RowFault::kCut), 1) << size;
    EXPECT_EQ(cut.faults.total(), 1) << size;
    EXPECT_EQ(cut.faults.lines[static_cast<std::size_t>(RowFault::kCut)][0], cut.lines);
  }
  std::string damaged = packed;
  for (std::size_t i = packed.size() / 2; i < packed.size() / 2 + 64; ++i) damaged[i] = '\x55';
  const Result broken = read_all(write("damaged", damaged));
  EXPECT_EQ(broken.faults.count(RowFault::kCut), 1);
  EXPECT_LT(broken.rows.size(), whole.rows.size());
  std::string wrong_sum = packed;
  wrong_sum[packed.size() - 6] = static_cast<char>(wrong_sum[packed.size() - 6] ^ 1);
  EXPECT_EQ(read_all(write("wrong_sum", wrong_sum)).faults.count(RowFault::kCut), 1);
}

TEST_F(CriteoReaderTest, WhatCannotBeOpenedIsAWholeMessage) {
  const auto refusal = [](const std::string& path) { return error_of([&] { CriteoReader reader(path); }); };
  EXPECT_EQ(refusal("/no/such"), "data file '/no/such': cannot open it: No such file or directory");
  EXPECT_EQ(refusal(folder_),
            "data file '" + folder_ + "': expected a file of tab-separated rows, found a folder");
  const Result empty = read_all(write("empty", ""));
  EXPECT_EQ(empty.lines, 0);
  EXPECT_EQ(empty.faults.total(), 0);
}

}  // namespace
}  // namespace tenon::ctr::criteo_reader_test
