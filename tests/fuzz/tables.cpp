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
    }
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kRun, error.what());
  }
  return 0;
}
