// The section of a run's page about its tables: curves of hits that rise with the cache, the tiers, and
// messages for damaged files.
#include "report/tables_section.hpp"
#include "report/pages.hpp"
#include "report/testing_runs.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <vector>

namespace tenon::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A file of rank 0 with one table of 10 rows.
std::string tables_record(const std::string& members) {
  return R"({"rank": 0, "ranks": 1, "first_slot": 0, "slots": 4, "samples": 8, "named_rows": 0, "tables": [
      {"name": "emb.<0>", "rows": 10, "width": 4, "dtype": "f32", "bytes": 160, "owned": [0, 10],
       "accesses": 8, "touched_rows": 2, "share_of_hottest_1_percent": 1, "share_of_hottest_10_percent": 1,
       "hottest": [])" +
         members + "}]}";
}

class TablesSection : public RunFolders {};

TEST_F(TablesSection, DrawsHitsAndListsTiers) {
  const std::string attempt = run("tiny");
  EXPECT_THAT(run_page(load_run(attempt)), Not(HasSubstr("<h2>Tables</h2>"))) << "a run without records";
  write("tiny/1/tables.rank0.json", tables_record(""));
  EXPECT_THAT(run_page(load_run(attempt)), Not(HasSubstr("<h2>Tables</h2>"))) << "neither tiers nor reuse";
  write("tiny/1/tables.rank0.json", tables_record(R"(, "tiers": [
      {"state": "optimizer.sum", "tier": "cached", "reads": 30, "writes": 10, "hits": 36, "misses": 4,
       "ahead": 0, "evictions": 3, "write_backs": 1, "bytes_in": 1500, "bytes_out": 500,
       "stall_seconds": 0.25}], "reuse": {"accesses": 8, "first": 2, "lru_hits": [[1, 2], [5, 6], [10, 6]]})"));
  EXPECT_THAT(run_page(load_run(attempt)),
              AllOf(HasSubstr("<h2>Tables</h2>"), HasSubstr("optimizer.sum of emb.&lt;0&gt;"),
                    HasSubstr("90.0 %"), HasSubstr("0.25 s"), HasSubstr("rows in the cache, % of the table"),
                    HasSubstr("curve arm0"), Not(HasSubstr("emb.<0>"))));
}

// The steps of the path from point to point: right and up, y of drawings goes down.
TEST_F(TablesSection, ALargerCacheIsFurtherRightAndNotLower) {
  train::RunTables run{.folder = "r"};
  train::TablePart part{.last = 10};
  part.reuse = train::ReuseFacts{.accesses = 8, .first = 2, .lru = {{1, 2}, {5, 6}, {10, 6}}};
  train::TableFacts& table = run.tables.emplace_back();
  table.name = "emb";
  table.placement.push_back(part);
  const std::string page = tables_section(run);
  const std::size_t at = page.find('l', page.find("d=\"M", page.find("curve arm0")));
  ASSERT_NE(at, std::string::npos) << page;
  std::vector<double> steps;
  const char* text = page.c_str() + at + 1;
  for (char* end = nullptr; *text != '"'; text = end) {
    steps.push_back(std::strtod(text, &end));
    ASSERT_NE(end, text) << page;
  }
  ASSERT_EQ(steps.size(), 6u) << page;
  for (const std::size_t i : {0, 2, 4}) EXPECT_GT(steps[i], 0);
  EXPECT_LT(steps[1], 0);
  EXPECT_EQ(steps[5], 0);
  // 2 of 8 hits at the first size, 6 of 8 at the second.
  EXPECT_NEAR(steps[3] / steps[1], 2, 0.05);
}

TEST_F(TablesSection, ADamagedFileIsNamedAndThePageIsThere) {
  const std::string attempt = run("tiny");
  write("tiny/1/tables.rank0.json", "{\"rank\": ");
  EXPECT_THAT(run_page(load_run(attempt)),
              AllOf(HasSubstr("tables.rank0.json: not a file of observer"), HasSubstr("<h2>Curves</h2>")));
}

}  // namespace
}  // namespace tenon::report
