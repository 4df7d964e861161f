// Placement of the rows of the tables of one embedding_bag on several replicas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::recsys {

/// First row of each replica, and the number of rows: each table is sharded evenly.
std::vector<std::int64_t> even_offsets(std::int64_t rows, int replicas);
/// The same when `owner` holds the whole table.
std::vector<std::int64_t> whole_offsets(std::int64_t rows, int owner, int replicas);

/// Owner of each table. The largest table first, each to the replica with the least load so far (longest
/// processing time first: at most 4/3 of the best greatest load, Graham 1969). The load of a table is its
/// share of all bytes plus its share of all lookups, which is the same for each: a batch reads one bag of
/// each.
std::vector<int> balance(std::span<const std::int64_t> rows, int replicas);

}  // namespace tenon::recsys
