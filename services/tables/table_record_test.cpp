// The whole output of `tenon inspect RUN --tables`, and invalid files.
#include "tables/table_record.hpp"

#include "store/testing/memory_files.hpp"

#include <tenon/error.hpp>

#include <gtest/gtest.h>

namespace tenon::train {
namespace {

std::string file(int rank, int ranks, const std::string& tables) {
  return "{\"rank\": " + std::to_string(rank) + ", \"ranks\": " + std::to_string(ranks) +
         ", \"first_slot\": 2, \"slots\": 40, \"named_rows\": 2, \"tables\": [" + tables + "]}";
}

std::string table(const std::string& owned, int accesses, int touched, const std::string& hottest,
                  const std::string& rows = "10") {
  return R"({"name": "emb.0.weight", "rows": )" + rows +
         R"(, "width": 4, "dtype": "f32", "bytes": 160, "owned": )" + owned +
         ", \"accesses\": " + std::to_string(accesses) + ", \"touched_rows\": " + std::to_string(touched) +
         ", \"touched_share\": 0.5, \"share_of_hottest_1_percent\": 0.625, \"share_of_hottest_10_percent\": "
         "0.75, "
         "\"hottest\": [" +
         hottest + "]}";
}

const std::string kFirst = table("[0, 5]", 8, 2, R"({"row": 4, "accesses": 5}, {"row": 1, "accesses": 3})");
const std::string kSecond = table("[5, 10]", 4, 1, R"({"row": 9, "accesses": 4})");

class TablesOfARun : public ::testing::Test {
 protected:
  TablesOfARun() { files_.make_directories("/run"); }
  void write(const std::string& name, const std::string& text) {
    files_.write_text_atomically("/run/" + name, text);
  }
  std::string message() {
    try {
      return "no error: " + tables_text(read_tables(files_, "/run"));
    } catch (const Error& error) {
      return error.what();
    }
  }
  testing::MemoryFiles files_;
};

TEST_F(TablesOfARun, PartsOfATableAreJoined) {
  write("tables.rank1.json", file(1, 3, kSecond));
  write("tables.rank0.json", file(0, 3, kFirst));
  write("tables.rank2.json", file(2, 3, table("[10, 10]", 0, 0, "")));
  write("tables.rankx.json", "not ours");
  const RunTables run = read_tables(files_, "/run");
  EXPECT_EQ(tables_text(run), R"(/run: 3 ranks, 40 applied slots from slot 2

emb.0.weight: 10 rows x 4 f32, 160 bytes
  touched: 3 rows (30.0 %), 12 accesses
  hottest rows: 4 (5), 9 (4)
  rank 0: rows 0 to 4, 8 accesses; the hottest 1 % of these rows took 62.5 %, the hottest 10 % 75.0 %
  rank 1: rows 5 to 9, 4 accesses; the hottest 1 % of these rows took 62.5 %, the hottest 10 % 75.0 %
  rank 2: no rows
)");
  EXPECT_EQ(tables_json(run), R"({
  "run": "/run",
  "ranks": 3,
  "first_slot": 2,
  "slots": 40,
  "samples": 0,
  "ranks_without_file": [],
  "tables": [
    {
      "name": "emb.0.weight",
      "rows": 10,
      "width": 4,
      "dtype": "f32",
      "bytes": 160,
      "accesses": 12,
      "touched_rows": 3,
      "touched_share": 0.3,
      "hottest": [
        {
          "row": 4,
          "accesses": 5
        },
        {
          "row": 9,
          "accesses": 4
        }
      ],
      "placement": [
        {
          "rank": 0,
          "first_row": 0,
          "end_row": 5,
          "accesses": 8,
          "touched_rows": 2,
          "share_of_hottest_1_percent": 0.625,
          "share_of_hottest_10_percent": 0.75
        },
        {
          "rank": 1,
          "first_row": 5,
          "end_row": 10,
          "accesses": 4,
          "touched_rows": 1,
          "share_of_hottest_1_percent": 0.625,
          "share_of_hottest_10_percent": 0.75
        },
        {
          "rank": 2,
          "first_row": 10,
          "end_row": 10,
          "accesses": 0,
          "touched_rows": 0,
          "share_of_hottest_1_percent": 0.625,
          "share_of_hottest_10_percent": 0.75
        }
      ]
    }
  ]
}
)");
}

TEST_F(TablesOfARun, CopiesCountOnceAndARankWithoutFileIsNamed) {
  const std::string whole = table("[0, 10]", 8, 2, R"({"row": 4, "accesses": 8})");
  write("tables.rank0.json", file(0, 4, whole));
  write("tables.rank1.json", file(1, 4, whole));
  EXPECT_EQ(message(), R"(no error: /run: 4 ranks, 40 applied slots from slot 2
no file of rank 2, 3: what those ranks hold is missing below

emb.0.weight: 10 rows x 4 f32, 160 bytes
  touched: 2 rows (20.0 %), 8 accesses
  hottest rows: 4 (8)
  rank 0: rows 0 to 9, 8 accesses; the hottest 1 % of these rows took 62.5 %, the hottest 10 % 75.0 %
  rank 1: rows 0 to 9, 8 accesses; the hottest 1 % of these rows took 62.5 %, the hottest 10 % 75.0 %
)");
}

/// The table of kFirst with more members.
std::string with(const std::string& members) {
  return kFirst.substr(0, kFirst.size() - 1) + ", " + members + "}";
}

std::string tier(const std::string& stall = "0.25") {
  return R"({"state": "", "tier": "cached", "reads": 30, "writes": 10, "hits": 36, "misses": 4, "ahead": 2,
      "evictions": 3, "write_backs": 1, "bytes_in": 64, "bytes_out": 16, "stall_seconds": )" +
         stall + "}";
}

TEST_F(TablesOfARun, TiersAndCachesAreShown) {
  write("tables.rank0.json", R"({"rank": 0, "ranks": 1, "first_slot": 0, "slots": 4, "samples": 8,
      "named_rows": 2, "tables": [)" +
                                 with("\"tiers\": [" + tier() + R"(, {"state": "optimizer.sum",
      "tier": "dram", "reads": 5, "writes": 5, "hits": 0, "misses": 0, "ahead": 0, "evictions": 0,
      "write_backs": 0, "bytes_in": 0, "bytes_out": 0, "stall_seconds": 0}],
      "reuse": {"accesses": 8, "first": 2, "lru_hits": [[1, 2], [2, 2], [5, 6]]})") +
                                 "]}");
  EXPECT_EQ(message(), R"(no error: /run: 1 rank, 4 applied slots from slot 0

emb.0.weight: 10 rows x 4 f32, 160 bytes
  touched: 2 rows (20.0 %), 8 accesses
  hottest rows: 4 (5), 1 (3)
  rank 0: rows 0 to 4, 8 accesses; the hottest 1 % of these rows took 62.5 %, the hottest 10 % 75.0 %
    weights in cached: 30 rows read, 10 written; 36 hits, 4 misses (90.0 % hits), 2 ahead, 3 evictions, 1 write-backs; 64 bytes in, 16 out; stalled 0.25 s
    optimizer.sum in dram: 5 rows read, 5 written
    a cache of the rows used last, of 8 accesses: 25.0 % hits with 1 rows, 75.0 % hits with 5 rows
)");
  const std::string json = tables_json(read_tables(files_, "/run"));
  for (const char* part : {"\"samples\": 8", "\"tier\": \"cached\"", "\"stall_seconds\": 0.25",
                           "\"state\": \"optimizer.sum\"", "\"lru_hits\": [", "\"hits\": 6"})
    EXPECT_NE(json.find(part), std::string::npos) << part << " in " << json;
}

TEST_F(TablesOfARun, NothingToShowIsSaid) {
  EXPECT_EQ(message(),
            "/run has no record of its tables (tables.rank<r>.json). The observer `tables` writes "
            "it: add\n\n[[observe]]\ntype = \"tables\"\n\nto the configuration and train again");
  write("tables.rank0.json", file(0, 1, ""));
  EXPECT_EQ(message(), "no error: /run: 1 rank, 40 applied slots from slot 2\nthe model has no row tables\n");
}

TEST_F(TablesOfARun, FilesThatDisagreeAreRefused) {
  write("tables.rank0.json", file(0, 2, kFirst));
  write("tables.rank1.json", file(1, 2, table("[5, 11]", 4, 1, "", "11")));
  EXPECT_EQ(message(),
            "/run: the files of the ranks disagree on table 'emb.0.weight': 10 x 4 f32 and 11 x 4 f32");
  write("tables.rank1.json", file(0, 2, kSecond));
  EXPECT_EQ(message(), "/run/tables.rank1.json: it is the file of rank 0");
}

TEST_F(TablesOfARun, SayWhatAFileLacks) {
  const struct {
    std::string text, what;
  } cases[] = {
      {"", "it is no JSON"},
      {file(0, 1, kFirst).substr(0, 200), "it is no JSON"},
      {"[]", "it has no 'rank'"},
      {file(1, 1, ""), "rank 1 of 1"},
      {"{\"rank\": -1}", "'rank' is not a whole number from 0 to 1048576"},
      {R"({"rank": 0, "ranks": 1, "first_slot": 0, "slots": 1, "named_rows": 2, "tables": 3})",
       "'tables' is no list"},
      {file(0, 1, "{\"name\": 3}"), "'name' is no text"},
      {file(0, 1, table("[0, 11]", 1, 1, "")), "'owned' is not a whole number from 0 to 10"},
      {file(0, 1, table("[7, 6]", 1, 1, "")), "'owned' is not a whole number from 0 to 6"},
      {file(0, 1, table("[0]", 1, 1, "")), "'owned' must hold two numbers"},
      {file(0, 1, table("[0, 5]", 1, 6, "")), "'touched_rows' is not a whole number from 0 to 5"},
      {file(0, 1, table("[0, 5]", 1, 1, "{\"row\": 0.5}")), "'row' is not a whole number from 0 to 10"},
      {file(0, 1, with("\"tiers\": 3")), "'tiers' is no list"},
      {file(0, 1, with("\"tiers\": [{}]")), "it has no 'state'"},
      {file(0, 1, with("\"tiers\": [" + tier("-1") + "]")), "'stall_seconds' is not a number from 0 on"},
      {file(0, 1, with("\"tiers\": [" + tier("\"x\"") + "]")), "'stall_seconds' is not a number"},
      {file(0, 1, with("\"reuse\": []")), "it has no 'accesses'"},
      {file(0, 1, with(R"("reuse": {"accesses": 3, "first": 4})")),
       "'first' is not a whole number from 0 to 3"},
      {file(0, 1, with(R"("reuse": {"accesses": 3, "first": 1, "lru_hits": [1]})")), "'lru_hits' is no list"},
      {file(0, 1, with(R"("reuse": {"accesses": 3, "first": 1, "lru_hits": [[1]]})")),
       "a point of 'lru_hits' must hold two numbers"},
      {file(0, 1, with(R"("reuse": {"accesses": 3, "first": 1, "lru_hits": [[6, 1]]})")),
       "'lru_hits' is not a whole number from 0 to 5"},
      {file(0, 1, with(R"("reuse": {"accesses": 3, "first": 1, "lru_hits": [[1, 3]]})")),
       "'lru_hits' is not a whole number from 0 to 2"},
      {file(0, 1, with(R"("reuse": {"accesses": 3, "first": 1, "lru_hits": [[2, 2], [3, 1]]})")),
       "'lru_hits' falls: 1 hits with 3 rows follow 2 with 2"},
      {file(0, 1, with(R"("reuse": {"accesses": 3, "first": 1, "lru_hits": [[2, 1], [2, 2]]})")),
       "'lru_hits' falls: 2 hits with 2 rows follow 1 with 2"},
  };
  for (const auto& [text, what] : cases) {
    write("tables.rank0.json", text);
    EXPECT_EQ(message(), "/run/tables.rank0.json: not a file of observer 'tables': " + what) << text;
  }
}

}  // namespace
}  // namespace tenon::train
