// Target: tables.rank<r>.json, as `tenon inspect RUN --tables` reads it. An accepted file is consistent.
#include "input.hpp"
#include "tables/table_record.hpp"

#include <tenon/error.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  try {
    const train::RankTables tables = train::parse_rank_tables(fuzz::text_of(data, size), "input");
    for (const train::TableFacts& table : tables.tables) {
      const train::TablePart& part = table.placement.at(0);
      fuzz::require(0 <= part.first && part.first <= part.last && part.last <= table.rows, "rows outside");
      fuzz::require(part.touched <= part.last - part.first, "more rows touched than owned");
      for (const train::TierFacts& tier : part.tiers)
        fuzz::require(tier.hits >= 0 && tier.misses >= 0 && tier.stall_seconds >= 0, "counts below 0");
      if (!part.reuse) continue;
      train::ReuseFacts::Point last;
      for (const train::ReuseFacts::Point& point : part.reuse->lru) {
        fuzz::require(point.rows > last.rows && point.hits >= last.hits, "hits fall");
        last = point;
      }
      fuzz::require(last.hits + part.reuse->first <= part.reuse->accesses, "more hits than accesses");
    }
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kRun, error.what());
  }
  return 0;
}
