// The record of a run's tables (tables.rank<r>.json in its folder), on the run's page: hits against the size
// of a cache, and what the tiers of the tables did.
#pragma once

#include "tables/table_record.hpp"

#include <tenon/files.hpp>

#include <string>

namespace tenon::report {

/// "" for a record without tiers and reuse.
std::string tables_section(const train::RunTables& run);
/// "" without records.
std::string tables_section(FileSystem& files, const std::string& attempt);

}  // namespace tenon::report
